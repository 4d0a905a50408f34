#include "executor/cuda/cuda_shape.h"

#include <algorithm>

namespace tutti {
namespace {

constexpr size_t kSliceAlign = 64;

// A virtual GPU's threads take turns on a core: more than a warp only cost switches, unless a step is long.
constexpr uint32_t kVirtualThreads = 32;
constexpr uint32_t kVirtualThreadsLarge = 64;
constexpr size_t kVirtualLargeBytes = size_t{64} << 10;

// 512 threads with eight loads of 16 bytes each have 64 KiB under way, what a link needs of one
// multiprocessor. Short calls are a matter of barriers and polls, which cost less with fewer warps.
constexpr uint32_t kThreads = 256;
constexpr uint32_t kThreadsLarge = 512;
constexpr size_t kLargeBytes = size_t{32} << 10;

size_t capacityOf(uint32_t lines, uint32_t lineBytes, int32_t pieces) {
  return static_cast<size_t>(lines) / static_cast<size_t>(pieces) * lineBytes;
}

}  // namespace

std::string whyOnlySimple(const device::Program& program, device::Protocol protocol) {
  if (protocol == device::Protocol::simple) return {};
  if (program.sendsMessages == 0) return "it sends no messages";
  if (program.hasUnknownSizes != 0) return "it forwards messages whose size the lines do not tell";
  // Lines order what travels in them, and nothing else.
  if (program.usesPeerBuffers != 0 || program.sharedScratch != 0)
    return "its messages order accesses to peers' memory";
  return {};
}

size_t longestSlice(const Schedule& schedule, const device::Comm& comm, device::Protocol protocol) {
  size_t limit = schedule.maxSliceBytes(comm.slotBytes, comm.layout.scratchHalfBytes);
  if (protocol != device::Protocol::simple && schedule.maxCount > 0) {
    const bool isLL = protocol == device::Protocol::ll;
    const size_t inLines = isLL ? capacityOf(comm.linesOfSlotLL, device::kDataLL, schedule.maxCount)
                                : capacityOf(comm.linesOfSlotLL128, device::kDataLL128, schedule.maxCount);
    // Slots of Simple do not matter to lines.
    limit = std::min(schedule.maxSliceBytes(SIZE_MAX, comm.layout.scratchHalfBytes), inLines);
  }
  return std::min(limit, kUnlimitedSlice) / kSliceAlign * kSliceAlign;
}

uint32_t threadsFor(bool isVirtual, size_t blockBytes) {
  if (isVirtual) return blockBytes >= kVirtualLargeBytes ? kVirtualThreadsLarge : kVirtualThreads;
  return blockBytes >= kLargeBytes ? kThreadsLarge : kThreads;
}

uint32_t mostThreads(bool isVirtual) { return isVirtual ? kVirtualThreadsLarge : kThreadsLarge; }

}  // namespace tutti
