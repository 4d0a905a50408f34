// Numbers of algorithm files that depend on the rank: "rank + 1", "2 * ranks - 2 - i".
#pragma once

#include <cstdint>
#include <string_view>

#include "algorithms/schedule.h"
#include "base/status.h"

namespace tutti {

/// The values of the names in an expression; a name that has none here is an error.
struct ExpressionNames {
  int64_t ranks = 1;
  int64_t rank = -1;       // -1: the expression belongs to no rank
  int64_t root = -1;       // -1: the collective has none
  bool iteration = false;  // `i` may be used: the expression stands in a loop
};

/// base + stride * i, wrapped at `modulus` when that is > 0 (then base may lie outside of it).
struct ExpressionValue {
  int64_t base = 0;
  int64_t stride = 0;
  int64_t modulus = 0;
  bool named = false;  // a name occurs in it
};

/// Longest text, deepest parentheses, largest number on the way.
constexpr size_t kExpressionMaxLength = 200;
constexpr int kExpressionMaxDepth = 16;
constexpr int64_t kExpressionMaxValue = int64_t{1} << 30;

/// Evaluates
///     expression = sum { ("mod" | "xor") sum }
///     sum        = ["-"] product { ("+" | "-") product }
///     product    = factor { ("*" | "/") factor }                 "/" rounds down
///     factor     = number | "rank" | "ranks" | "root" | "i" | "(" expression ")"
/// `mod` never gives a negative number. `i` may be added, subtracted and multiplied by what does not depend
/// on it; the remainder of it may be taken last of all. Errors (invalidUsage) say what is wrong, not where.
Result<ExpressionValue> evaluate(std::string_view text, const ExpressionNames& names);

}  // namespace tutti
