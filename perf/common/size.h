// Byte counts as users write them: "8", "64K", "128M", "2G".
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti::perf {

/// A decimal number, with an optional fraction, and an optional suffix K, M, G or T (either case; powers of
/// 1024; "KB" and "KiB" mean the same). Empty when the text is something else, is negative, or does not fit.
std::optional<uint64_t> parseSize(std::string_view text);

/// A whole non-negative decimal number without a suffix, at most `maximum`.
std::optional<uint64_t> parseNumber(std::string_view text, uint64_t maximum);

}  // namespace tutti::perf
