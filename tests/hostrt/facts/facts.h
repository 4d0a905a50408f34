#pragma once

#include <string>
#include <vector>

struct Fact {
  std::string name;
  std::string value;
};

std::vector<Fact> ownFacts();
std::vector<Fact> toolkitFacts();
