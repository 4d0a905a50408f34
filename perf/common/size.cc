#include "common/size.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace tutti::perf {
namespace {

/// Removes "B" or "iB" after a unit letter.
std::string_view withoutByteSign(std::string_view text) {
  if (text.size() < 2 || (text.back() != 'B' && text.back() != 'b')) return text;
  text.remove_suffix(1);
  if (text.size() >= 2 && text.back() == 'i') text.remove_suffix(1);
  const char last = text.back();
  const bool unit = last >= 'A';
  return unit ? text : std::string_view();
}

int shiftOf(char unit) {
  switch (unit) {
    case 'k':
    case 'K':
      return 10;
    case 'm':
    case 'M':
      return 20;
    case 'g':
    case 'G':
      return 30;
    case 't':
    case 'T':
      return 40;
    default:
      return 0;
  }
}

}  // namespace

std::optional<uint64_t> parseNumber(std::string_view text, uint64_t maximum) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > maximum) return std::nullopt;
  return value;
}

std::optional<uint64_t> parseSize(std::string_view text) {
  text = withoutByteSign(text);
  if (text.empty()) return std::nullopt;
  const int shift = shiftOf(text.back());
  if (shift > 0) text.remove_suffix(1);

  const uint64_t most = std::numeric_limits<uint64_t>::max() >> shift;
  if (const auto whole = parseNumber(text, most)) return *whole << shift;

  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  double fraction = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), fraction, std::chars_format::fixed);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  const double bytes = std::ldexp(fraction, shift);
  // 2^63 is far above any buffer and exactly representable.
  if (!(bytes < 9223372036854775808.0)) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

}  // namespace tutti::perf
