// The GPUs of a topology file (NCCL_TOPO_FILE), for virtual GPUs that stand for a machine's real ones.
//
// libnccl.so.2 reads the same file (topology/system_xml.h) for everything else that is in it; here count the
// GPUs alone. This library takes nothing of it, since a program may have the one without the other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::hostrt {

struct FileGpu {
  int number = -1;  // attribute dev; -1: none
  uint32_t domain = 0;
  uint32_t bus = 0;
  uint32_t device = 0;
  uint32_t function = 0;
  int sm = 0;                        // compute capability, 90 for 9.0; 0: not said
  std::vector<std::string> nvlinks;  // PCI addresses of the other ends, in lower case

  /// "0000:0f:00.0", as in sysfs.
  std::string busId() const;
};

struct FileGpus {
  std::vector<FileGpu> gpus;  // of the file's first host, by number; those without a number get the free ones
  std::string error;          // not empty: file, line and what is wrong
};

/// Parses the text of a file; `name` is for messages.
FileGpus parseTopologyFile(std::string_view text, const std::string& name);
FileGpus readTopologyFile(const std::string& path);

/// Whether the GPUs reach each other by NVLink: directly, or through switches that both have links to.
bool areLinkedByNvlink(const FileGpu& a, const FileGpu& b);

/// "Tutti virtual H100".
std::string nameOf(const FileGpu& gpu);

}  // namespace tutti::hostrt
