#include "topology/pci.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

namespace tutti {
namespace {

constexpr const char* kHiddenText = "fffffff:ffff:ff";
constexpr int32_t kVendorAmd = 0x1002;

/// Takes hexadecimal digits from the front of `text`, at least one and at most `digits`.
std::optional<uint32_t> takeHex(std::string_view& text, size_t digits) {
  uint32_t value = 0;
  const std::string_view part = text.substr(0, digits);
  const auto [end, code] = std::from_chars(part.data(), part.data() + part.size(), value, 16);
  if (code != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - part.data()));
  return value;
}

bool takeChar(std::string_view& text, char expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string BusId::text() const {
  if (*this == kHiddenBusId) return kHiddenText;
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function);
}

std::optional<BusId> parseBusId(std::string_view text) {
  if (text == kHiddenText) return kHiddenBusId;
  std::optional<uint32_t> domain = 0;
  if (text.find(':') != text.rfind(':')) {
    domain = takeHex(text, 8);
    if (!domain || !takeChar(text, ':')) return std::nullopt;
  }
  const auto bus = takeHex(text, 2);
  if (!bus || !takeChar(text, ':')) return std::nullopt;
  const auto device = takeHex(text, 2);
  if (!device || *device > 31 || !takeChar(text, '.')) return std::nullopt;
  const auto function = takeHex(text, 1);
  if (!function || *function > 7 || !text.empty()) return std::nullopt;
  return BusId{*domain, static_cast<uint8_t>(*bus), static_cast<uint8_t>(*device),
               static_cast<uint8_t>(*function)};
}

PciKind pciKind(int32_t classCode, int32_t vendor) {
  if (classCode < 0) return PciKind::unknown;
  const int32_t base = classCode >> 16, sub = classCode >> 8 & 0xff;
  if (base == 0x02) return PciKind::nic;
  if (base == 0x03)
    return sub == 0x02 || vendor == kPciVendorNvidia || vendor == kVendorAmd ? PciKind::gpu : PciKind::other;
  if (base == 0x06 && sub == 0x04) return PciKind::bridge;
  if (classCode == kPciClassNvswitch) return PciKind::nvswitch;
  return PciKind::other;
}

PciBandwidth pciBandwidth(std::string_view speed, int32_t width) {
  // GT/s of a lane, and GB/s: up to 5 GT/s a fifth of the bits is coding, from 8 GT/s on hardly any.
  constexpr std::array<std::pair<double, float>, 7> kGenerations = {
      {{2.5, 0.1875f}, {5, 0.375f}, {8, 0.75f}, {16, 1.5f}, {32, 3.f}, {64, 6.f}, {128, 12.f}}};
  PciBandwidth result;
  float lane = 0;
  double rate = 0;
  const auto [end, code] = std::from_chars(speed.data(), speed.data() + speed.size(), rate);
  const std::string_view unit = speed.substr(static_cast<size_t>(end - speed.data()));
  if (code == std::errc() && (unit.starts_with(" GT/s") || unit.starts_with("GT/s")))
    for (const auto& [known, gigabytes] : kGenerations)
      if (rate == known) lane = gigabytes;
  if (lane == 0) {
    lane = 0.75f;
    result.speedAssumed = true;
  }
  if (width <= 0 || width > 32) {  // 255: sysfs, for a link that is down
    width = 16;
    result.widthAssumed = true;
  }
  result.gigabytes = lane * static_cast<float>(width);
  return result;
}

}  // namespace tutti
