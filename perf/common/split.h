// NCCL_TESTS_SPLIT: several groups of ranks that run the same operation at the same time.
#pragma once

#include <cstdint>
#include <string>

#include "common/outcome.h"

namespace tutti::perf {

/// How a rank becomes a color; ranks of one color form a communicator.
struct Split {
  enum class Rule : uint8_t { all, bitAnd, bitOr, modulo, divide } rule = Rule::all;
  uint64_t value = 0;

  int color(int rank) const;
};

/// "AND 0x7", "|8", "MOD 2", "DIV 0b100" (either case, blanks optional) into `split`. An empty text: one
/// group.
Outcome parseSplit(const std::string& text, Split& split);

/// From NCCL_TESTS_SPLIT_MASK ("AND" with it) or NCCL_TESTS_SPLIT.
Outcome splitFromEnvironment(Split& split);

}  // namespace tutti::perf
