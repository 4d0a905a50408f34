// Facts about nccl.h and nccl_device.h: the same source compiled against our headers and NVIDIA's.
#pragma once

#include <string>
#include <vector>

struct AbiFact {
  std::string name;
  std::string value;
};

std::vector<AbiFact> ownAbiFacts();
std::vector<AbiFact> ownAbiFactsWithTimeout();  // compiled with TUTTI_NCCL_TIMEOUT
std::vector<AbiFact> toolkitAbiFacts();
