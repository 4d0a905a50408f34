#include "topology/cpu_mask.h"

#include <fmt/format.h>

#include <charconv>

namespace tutti {
namespace {

constexpr size_t kMaxCpus = 65536;
constexpr size_t kWordBits = 32;

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

template <typename Integer>
bool parseWhole(std::string_view text, int base, Integer* value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return code == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::optional<std::vector<int32_t>> parseCpuMask(std::string_view mask) {
  const std::vector<std::string_view> words = split(mask);
  if (words.size() > kMaxCpus / kWordBits) return std::nullopt;
  std::vector<int32_t> cpus;
  for (size_t w = 0; w < words.size(); ++w) {
    const std::string_view text = words[words.size() - 1 - w];
    uint32_t word = 0;
    if (!parseWhole(text, 16, &word)) return std::nullopt;
    for (size_t bit = 0; bit < kWordBits; ++bit)
      if ((word >> bit & 1) != 0) cpus.push_back(static_cast<int32_t>(w * kWordBits + bit));
  }
  return cpus;
}

std::string cpuMaskText(const std::vector<int32_t>& cpus) {
  if (cpus.empty()) return "0";
  std::vector<uint32_t> words(static_cast<size_t>(cpus.back()) / kWordBits + 1);
  for (const int32_t cpu : cpus) words[static_cast<size_t>(cpu) / kWordBits] |= 1u << (cpu % 32);
  std::string text = fmt::format("{:x}", words.back());
  for (size_t w = words.size() - 1; w-- > 0;) text += fmt::format(",{:08x}", words[w]);
  return text;
}

std::optional<std::vector<int32_t>> parseCpuList(std::string_view list) {
  std::vector<int32_t> cpus;
  if (list.empty()) return cpus;
  for (const std::string_view part : split(list)) {
    int32_t first = 0, last = 0;
    const size_t dash = part.find('-');
    if (!parseWhole(part.substr(0, dash), 10, &first)) return std::nullopt;
    last = first;
    if (dash != std::string_view::npos && !parseWhole(part.substr(dash + 1), 10, &last)) return std::nullopt;
    if (first < 0 || last < first || last >= static_cast<int32_t>(kMaxCpus)) return std::nullopt;
    if (!cpus.empty() && first <= cpus.back()) return std::nullopt;
    for (int32_t cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::string cpuListText(const std::vector<int32_t>& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += end - i == 1 ? fmt::format("{}", cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace tutti
