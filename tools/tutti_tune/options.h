// The command line of tutti-tune.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "algorithms/schedule.h"

namespace tutti::tune {

struct Options {
  std::vector<int> ranks = {2, 3, 4, 8};
  int threads = 0;  // of each process; 0: as many as the ranks need
  std::vector<Collective> collectives;
  size_t minBytes = 8;
  size_t maxBytes = size_t{16} << 20;
  size_t factor = 8;
  double budgetSeconds = 60;
  double noise = 0.05;
  double quantile = 0.5;  // of the samples, that counts as a way's time
  bool compare = false;
  double limit = 0;  // --compare: the geometric mean above which the program fails; 0: none
  std::string output = "tuning.csv";
  std::string csv;
  bool quiet = false;

  /// Ascending.
  std::vector<size_t> sizes() const;
  int mostRanks() const;
};

/// Fills `options` and returns -1, or prints what was asked for, or what is wrong, and returns the exit
/// status.
int parseOptions(int argc, char** argv, bool speaks, Options* options);

}  // namespace tutti::tune
