// What a program asks of the dynamic linker.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tutti {

struct ElfNeeds {
  std::vector<std::string> libraries;  // DT_NEEDED
  std::string rpath;             // DT_RPATH where it counts (no DT_RUNPATH): searched before LD_LIBRARY_PATH
  bool hasStaticCudart = false;  // the CUDA runtime is linked in
};

/// Nothing when the file is not a 64-bit little-endian ELF file (a script, say), or is damaged. Needs the
/// whole file in memory for a moment.
std::optional<ElfNeeds> readElfNeeds(const std::string& path);

}  // namespace tutti
