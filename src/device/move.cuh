// Sources in memory into destinations in memory, by all threads of a block: 16 bytes a thread and several
// loads in flight where all addresses are equally far from a multiple of 16, else element by element.
#pragma once

#include "device/plan.cuh"
#include "device/reduce.cuh"

namespace tutti::device::TUTTI_KERNELS {

constexpr uint32_t kVector = 16;

/// How bytes are cut for the threads: `count` chunks, the first at byte `first`; `gap` bytes that others move
/// lie before chunk `gapAt`.
struct Grid {
  uint64_t count;
  uint64_t first;
  uint64_t gap;
  uint32_t gapAt;
};

/// One element may lie at any address.
template <int kBytes>
TUTTI_DEVICE Chunk<kBytes> loadBytes(const std::byte* p) {
  std::byte bytes[kBytes];
#pragma unroll
  for (int i = 0; i < kBytes; ++i) bytes[i] = p[i];
  Chunk<kBytes> chunk;
  std::memcpy(&chunk, bytes, kBytes);
  return chunk;
}
template <int kBytes>
TUTTI_DEVICE void storeBytes(std::byte* p, const Chunk<kBytes>& chunk) {
  std::byte bytes[kBytes];
  std::memcpy(bytes, &chunk, kBytes);
#pragma unroll
  for (int i = 0; i < kBytes; ++i) p[i] = bytes[i];
}

/// A thread's chunks: every blockDim.x-th of the grid, from `first` on. Offsets are made of 32-bit products,
/// so that the compiler keeps no 64-bit number for each chunk from one tile to the next.
template <int kBytes, int kUnroll>
struct Tile {
  const Grid& grid;
  uint64_t first;
  bool aligned;  // to kBytes

  TUTTI_DEVICE static uint32_t step(int u) { return static_cast<uint32_t>(u) * blockDim.x; }
  TUTTI_DEVICE bool present(int u) const {
    const uint64_t left = grid.count - first;
    return step(u) < (left < 0x7fffffff ? static_cast<uint32_t>(left) : 0x7fffffffu);
  }
  TUTTI_DEVICE const std::byte* at(const std::byte* p, int u) const {
    p += grid.first + first * kBytes;
    if (kBytes != kVector && first + step(u) >= grid.gapAt) p += grid.gap;
    return p + step(u) * static_cast<uint32_t>(kBytes);
  }
  TUTTI_DEVICE void load(const std::byte* from, Chunk<kBytes> (&chunks)[kUnroll]) const {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      chunks[u] = {};
      if (!present(u)) continue;
      if (kBytes == kVector || aligned) {
        chunks[u] = loadPlain<kBytes>(at(from, u));
      } else {
        chunks[u] = loadBytes<kBytes>(at(from, u));
      }
    }
  }
  TUTTI_DEVICE void store(std::byte* to, const Chunk<kBytes> (&chunks)[kUnroll]) const {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (!present(u)) continue;
      auto* place = const_cast<std::byte*>(at(to, u));
      if (kBytes == kVector || aligned) {
        storePlain<kBytes>(place, chunks[u]);
      } else {
        storeBytes<kBytes>(place, chunks[u]);
      }
    }
  }
};

template <int kBytes, int kUnroll>
TUTTI_DEVICE void copyGrid(const Operands& o, const Grid& grid, bool aligned) {
  const std::byte* from = o.source(0);
  for (uint64_t first = threadIdx.x; first < grid.count;
       first += static_cast<uint64_t>(blockDim.x) * kUnroll) {
    const Tile<kBytes, kUnroll> tile{grid, first, aligned};
    Chunk<kBytes> chunks[kUnroll];
    tile.load(from, chunks);
#pragma unroll 1
    for (uint32_t k = 0; k < o.destinationCount; ++k) tile.store(o.destination(k), chunks);
  }
}

template <class Number, int kBytes, int kUnroll>
TUTTI_DEVICE void reduceGrid(const Operands& o, const Operator<Number>& op, const Grid& grid, bool aligned) {
  for (uint64_t first = threadIdx.x; first < grid.count;
       first += static_cast<uint64_t>(blockDim.x) * kUnroll) {
    const Tile<kBytes, kUnroll> tile{grid, first, aligned};
    Accumulator<Number, kBytes> sums[kUnroll];
    Chunk<kBytes> chunks[kUnroll];
    Chunk<kBytes> next[kUnroll] = {};
    tile.load(o.source(0), chunks);
    // Two sources are under way at once.
    if (o.sourceCount > 1) tile.load(o.source(1), next);
    start(op, sums, chunks);
#pragma unroll 1
    for (uint32_t k = 1; k < o.sourceCount; ++k) {
      if (k > 1) tile.load(o.source(k), next);
      fold(op, sums, next);
    }
    finish(op, sums, chunks);
#pragma unroll 1
    for (uint32_t k = 0; k < o.destinationCount; ++k) tile.store(o.destination(k), chunks);
  }
}

/// How far the operands' addresses are from a multiple of `bytes`; `bytes` when they differ in that.
TUTTI_DEVICE uint32_t commonOffset(const Operands& o, uint32_t bytes) {
  const auto offsetOf = [&](const void* p) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p)) % bytes;
  };
  const uint32_t first = offsetOf(o.destination(0));
  bool same = true;
#pragma unroll 1
  for (uint32_t k = 1; k < o.destinationCount; ++k) same = same && offsetOf(o.destination(k)) == first;
#pragma unroll 1
  for (uint32_t k = 0; k < o.sourceCount; ++k) same = same && offsetOf(o.source(k)) == first;
  return same ? first : bytes;
}

/// One piece, by all threads.
template <class Number>
TUTTI_DEVICE void movePiece(const Operands& o, const Operator<Number>& op, uint64_t bytes) {
  constexpr uint32_t kElement = sizeof(typename Number::Stored);
  constexpr int kUnroll = kElement == 1 ? 1 : kElement == 2 ? 2 : 4;  // a number is a register, however small
  if (op.copies && o.destinationCount == 1 && o.source(0) == o.destination(0)) return;
  const uint32_t offset = commonOffset(o, kVector);
  const bool aligned = commonOffset(o, kElement) == 0;
  const bool inVectors = offset != kVector && aligned;
  // Fewer than 16 bytes before the vectors.
  uint32_t head = inVectors ? (kVector - offset) % kVector : 0;
  if (head > bytes) head = static_cast<uint32_t>(bytes);
  const uint64_t vectorBytes = inVectors ? (bytes - head) / kVector * kVector : 0;
  const Grid vectors{vectorBytes / kVector, head, 0, 0};
  Grid rest{(bytes - vectorBytes) / kElement, 0, vectorBytes, head / kElement};
  if (TUTTI_PLANT == TUTTI_PLANT_LOST_REMAINDER) rest.count = head / kElement;
  if (TUTTI_PLANT == TUTTI_PLANT_BEHIND_END) ++rest.count;
  if (op.copies) {
    copyGrid<kVector, 4>(o, vectors, true);
    copyGrid<kElement, 2>(o, rest, aligned);
  } else {
    reduceGrid<Number, kVector, kUnroll>(o, op, vectors, true);
    reduceGrid<Number, kElement, 2>(o, op, rest, aligned);
  }
}

}  // namespace tutti::device::TUTTI_KERNELS
