#include "common/split.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace tutti::perf {
namespace {

struct RuleName {
  const char* name;
  Split::Rule rule;
};

constexpr std::array<RuleName, 8> kRules = {{{"AND", Split::Rule::bitAnd},
                                             {"OR", Split::Rule::bitOr},
                                             {"MOD", Split::Rule::modulo},
                                             {"DIV", Split::Rule::divide},
                                             {"&", Split::Rule::bitAnd},
                                             {"|", Split::Rule::bitOr},
                                             {"%", Split::Rule::modulo},
                                             {"/", Split::Rule::divide}}};

std::optional<uint64_t> parseAnyBase(std::string_view text) {
  int base = 10;
  if (text.starts_with("0X")) base = 16;
  if (text.starts_with("0B")) base = 2;
  if (base != 10) text.remove_prefix(2);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || value > 0x7fffffff) return std::nullopt;
  return value;
}

}  // namespace

int Split::color(int rank) const {
  const auto id = static_cast<uint64_t>(rank);
  switch (rule) {
    case Rule::all:
      return 0;
    case Rule::bitAnd:
      return static_cast<int>(id & value);
    case Rule::bitOr:
      return static_cast<int>(id | value);
    case Rule::modulo:
      return static_cast<int>(id % value);
    case Rule::divide:
      return static_cast<int>(id / value);
  }
  return 0;
}

Outcome parseSplit(const std::string& text, Split& split) {
  std::string packed;
  for (const char c : text)
    if (!std::isspace(static_cast<unsigned char>(c)))
      packed += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  split = {};
  if (packed.empty()) return Outcome::ok();
  for (const RuleName& known : kRules) {
    const std::string_view name = known.name;
    if (!packed.starts_with(name)) continue;
    const auto value = parseAnyBase(std::string_view(packed).substr(name.size()));
    const bool divides = known.rule == Split::Rule::modulo || known.rule == Split::Rule::divide;
    if (!value || (divides && *value == 0)) break;
    split = {known.rule, *value};
    return Outcome::ok();
  }
  return Outcome::misuse("\"" + text +
                         "\": expected AND, OR, MOD or DIV (or & | % /) and a number, such as \"MOD 8\"");
}

Outcome splitFromEnvironment(Split& split) {
  if (const char* mask = std::getenv("NCCL_TESTS_SPLIT_MASK"))
    return parseSplit(std::string("AND") + mask, split).within("NCCL_TESTS_SPLIT_MASK");
  if (const char* text = std::getenv("NCCL_TESTS_SPLIT"))
    return parseSplit(text, split).within("NCCL_TESTS_SPLIT");
  split = {};
  return Outcome::ok();
}

}  // namespace tutti::perf
