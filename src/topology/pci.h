// PCI: addresses, classes, link speeds.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti {

/// Address of a PCI device inside a host: "0000:0f:00.0".
struct BusId {
  uint32_t domain = 0;
  uint8_t bus = 0;
  uint8_t device = 0;    // 0 .. 31
  uint8_t function = 0;  // 0 .. 7

  auto operator<=>(const BusId&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 takes its 0
  /// Lower case, domain with at least four digits, as in sysfs.
  std::string text() const;
};

/// The far end of an NVLink whose PCI device is hidden from this virtual machine: "fffffff:ffff:ff" in NCCL's
/// files, and in text() and parseBusId().
constexpr BusId kHiddenBusId = {0xfffffff, 0xff, 0x1f, 7};

constexpr int32_t kPciClassGpu = 0x030200;          // a 3D controller
constexpr int32_t kPciClassNvswitch = 0x068000;     // of the target of an NVLink
constexpr int32_t kPciClassNvlinkToCpu = 0x068001;  // as above
constexpr int32_t kPciVendorNvidia = 0x10de;

/// "0000:0f:00.0", "00000000:0F:00.0" (NVML's form) or "0f:00.0", in any case; nothing for other text.
std::optional<BusId> parseBusId(std::string_view text);

/// What a device is, by its class code (0xCCSSPP) and vendor.
enum class PciKind { unknown, bridge, gpu, nic, nvswitch, other };

/// Vendor -1: not known. Display controllers count as GPUs when they are 3D controllers, or of a vendor whose
/// GPUs also call themselves VGA: a board's management controller is a VGA adapter as well.
PciKind pciKind(int32_t classCode, int32_t vendor);

struct PciBandwidth {
  float gigabytes = 0;        // GB/s in one direction
  bool speedAssumed = false;  // the text named no known speed: 8 GT/s
  bool widthAssumed = false;  // no width: 16 lanes
};

/// Bandwidth of a PCI link as NCCL counts it (about 75 % of the signalling rate): 12 GB/s for 16 lanes of
/// 8 GT/s. `speed` is what sysfs says: "8 GT/s", "16.0 GT/s PCIe", "Unknown"; may be empty. `width` in lanes,
/// 0 or less when not known.
PciBandwidth pciBandwidth(std::string_view speed, int32_t width);

}  // namespace tutti
