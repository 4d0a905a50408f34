// hwloc: cores, caches, packages and NUMA nodes where /sys does not show them. Declared here as far as it is
// used (version 2's interface; a test compares it with the library's own header), and opened at run time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "topology/cpu_layout.h"

namespace tutti {

/// The beginning of struct hwloc_obj.
struct HwlocObject {
  int type;
  char* subtype;
  unsigned osIndex;
  char* name;
  uint64_t totalMemory;
  void* attributes;  // of a cache: begins with its bytes
  int depth;
  unsigned logicalIndex;
  HwlocObject* nextCousin;
  HwlocObject* previousCousin;
  HwlocObject* parent;
  unsigned siblingRank;
  HwlocObject* nextSibling;
  HwlocObject* previousSibling;
  unsigned arity;
  HwlocObject** children;
  HwlocObject* firstChild;
  HwlocObject* lastChild;
  int isSymmetric;
  unsigned memoryArity;
  HwlocObject* firstMemoryChild;
  unsigned ioArity;
  HwlocObject* firstIoChild;
  unsigned miscArity;
  HwlocObject* firstMiscChild;
  void* cpuset;
};

constexpr int kHwlocPackage = 1, kHwlocCore = 2, kHwlocL2 = 5, kHwlocL3 = 6, kHwlocNumaNode = 13;

/// Functions of libhwloc.
struct HwlocApi {
  using Topology = void*;
  unsigned (*version)() = nullptr;
  int (*init)(Topology*) = nullptr;
  void (*destroy)(Topology) = nullptr;
  int (*setComponents)(Topology, unsigned long flags, const char* name) = nullptr;  // may be null
  int (*setFlags)(Topology, unsigned long flags) = nullptr;
  int (*load)(Topology) = nullptr;
  int (*typeDepth)(Topology, int type) = nullptr;
  unsigned (*countAtDepth)(Topology, int depth) = nullptr;
  HwlocObject* (*objectAtDepth)(Topology, int depth, unsigned index) = nullptr;
  int (*nextInBitmap)(const void* bitmap, int previous) = nullptr;  // -1: none
};

Result<HwlocApi> openHwloc(const std::string& file = "libhwloc.so.15");

struct HwlocFacts {
  CpuLayout cpus;
  struct NumaNode {
    int32_t id = 0;
    std::vector<int32_t> cpus;
    bool operator==(const NumaNode&) const = default;
  };
  std::vector<NumaNode> numaNodes;  // those with CPUs, ascending
};

/// Asks for all CPUs of the machine, those outside the process's control group included. hwloc's parts that
/// load GPU libraries are switched off. Fails when hwloc is another version or does not load.
Result<HwlocFacts> readHwloc(const HwlocApi& hwloc);

}  // namespace tutti
