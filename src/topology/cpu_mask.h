// Sets of CPUs in the kernel's two text forms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// CPU numbers, ascending, of a mask as in sysfs' cpumap: hexadecimal words of 32 bits with commas between,
/// the highest first. Nothing for other text, or for more than 65536 CPUs.
std::optional<std::vector<int32_t>> parseCpuMask(std::string_view mask);

/// The other way: "00000001,ffffffff"; "0" for none. `cpus` ascending.
std::string cpuMaskText(const std::vector<int32_t>& cpus);

/// CPU numbers, ascending, of a list as in sysfs' cpulist: "0-15,32". Nothing for other text.
std::optional<std::vector<int32_t>> parseCpuList(std::string_view list);

/// "0-15,32". `cpus` ascending.
std::string cpuListText(const std::vector<int32_t>& cpus);

}  // namespace tutti
