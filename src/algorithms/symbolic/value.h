// What a segment holds while a schedule is executed symbolically.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"

namespace tutti {

/// Reductions as expressions: leaf r is rank r's contribution, an inner node is left (+) right. Equal
/// expressions have equal numbers, so comparing numbers compares the order of a reduction. One table serves
/// all segments, since an expression does not say of which segment.
class ExpressionTable {
 public:
  explicit ExpressionTable(int32_t ranks);

  int32_t leaf(int32_t rank) const { return rank; }
  /// left (+) right. Fails when a rank contributes to both. That is exact for up to 64 ranks; above, the
  /// expression that is made shows it (containsAll() is false, but for a chance of 2^-60).
  Result<int32_t> combine(int32_t left, int32_t right);
  /// True when every rank contributes exactly once: exact sets for up to 64 ranks; above, the number of
  /// contributions and the sum of their random labels modulo the prime 2^61 - 1.
  bool containsAll(int32_t expression) const;
  int32_t contributions(int32_t expression) const { return nodes_[index(expression)].count; }
  /// Additions on the longest path: grows with the rounding error.
  int32_t depth(int32_t expression) const { return nodes_[index(expression)].depth; }
  /// "(0 + 1) + (2 + 3)"; shortened in the middle when long.
  std::string toText(int32_t expression) const;

 private:
  struct Node {
    int32_t left = -1;
    int32_t right = -1;
    int32_t count = 1;
    int32_t depth = 0;
    uint64_t set = 0;  // bit r: rank r contributes (up to 64 ranks); else sum of labels
  };
  static size_t index(int32_t expression) { return static_cast<size_t>(expression); }
  void appendText(int32_t expression, std::string& text) const;

  int32_t ranks_;
  bool exact_;
  uint64_t all_ = 0;
  std::vector<Node> nodes_;
  std::unordered_map<uint64_t, int32_t> known_;
};

/// Contents of one segment in one slice of one call.
struct Value {
  int32_t segment = -1;  // the input segment that the contributions are of; -1: never written
  int32_t expression = -1;
  int32_t call = -1;
  int32_t slice = -1;
  bool raw = false;    // the caller's input as it lies in memory: not scaled yet
  bool final = false;  // the operator's last step has been applied
  bool written() const { return segment >= 0; }
};

}  // namespace tutti
