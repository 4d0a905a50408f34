// The tuning file that measurements call for, as far as it holds on measurements that it is not made from.
#pragma once

#include <string>
#include <vector>

#include "algorithms/tuning_file.h"
#include "tutti_tune/samples.h"

namespace tutti::tune {

struct Proposal {
  TuningFile file;
  bool helps = false;    // what is chosen with it is better than without
  double shipped = 1;    // geometric means of chosen/best, on the half of the samples that judges
  double proposed = 1;   // the same with the file
  std::string findings;  // lines for people, each with # in front
};

/// Chooses among the shipped algorithms, with that file.
Result<Selector> selectorWith(const TuningFile& file);

/// Fits parameters of each medium, and makes entries, from one half of the samples; keeps of these what makes
/// the other half's geometric mean of chosen/best lower. Error: as Selector::create().
Result<Proposal> propose(const std::vector<Point>& points, double noise);

}  // namespace tutti::tune
