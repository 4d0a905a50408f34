// What a virtual GPU is made of: the same numbers on every machine, so that a program behaves the same.
#pragma once

#include <algorithm>
#include <cstddef>

namespace tutti::hostrt {

constexpr unsigned kMultiprocessors = 16;
constexpr unsigned kWarpSize = 32;
constexpr unsigned kThreadsPerBlock = 1024;
constexpr unsigned kThreadsPerMultiprocessor = 2048;
constexpr unsigned kBlocksPerMultiprocessor = 32;
constexpr size_t kSharedPerBlock = 48 << 10;
constexpr size_t kSharedPerBlockOptin = 227 << 10;
constexpr size_t kSharedPerMultiprocessor = 227 << 10;

/// Blocks of so many threads and bytes of shared memory that a multiprocessor holds.
inline unsigned blocksPerMultiprocessor(unsigned threads, size_t sharedBytes) {
  const unsigned rounded = (std::max(threads, 1u) + kWarpSize - 1) / kWarpSize * kWarpSize;
  unsigned blocks = std::min(kBlocksPerMultiprocessor, kThreadsPerMultiprocessor / rounded);
  if (sharedBytes > 0)
    blocks = std::min(blocks, static_cast<unsigned>(kSharedPerMultiprocessor / sharedBytes));
  return blocks;
}

}  // namespace tutti::hostrt
