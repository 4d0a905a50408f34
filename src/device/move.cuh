// Sources in memory into destinations in memory, by all threads of a block: 16 bytes a thread and several
// loads in flight where all addresses are equally far from a multiple of 16, else element by element.
#pragma once

#include "device/plan.cuh"
#include "device/reduce.cuh"

namespace tutti::device::TUTTI_KERNELS {

constexpr uint32_t kVector = 16;

/// How bytes are cut for the threads: `count` chunks, chunk i at offset(i).
struct Grid {
  uint64_t count;
  uint64_t gapAfter;  // chunks before the gap
  uint64_t gap;       // bytes that others move
  uint64_t first;     // byte
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

/// Chunks first, first + blockDim.x, ... of a grid.
template <int kBytes, int kUnroll>
struct Tile {
  const Grid& grid;
  uint64_t first;
  bool aligned;  // to kBytes

  TUTTI_DEVICE uint64_t chunk(int u) const { return first + static_cast<uint32_t>(u) * blockDim.x; }
  TUTTI_DEVICE uint64_t offset(int u) const {
    const uint64_t at = grid.first + chunk(u) * kBytes;
    return kBytes != kVector && chunk(u) >= grid.gapAfter ? at + grid.gap : at;
  }
  TUTTI_DEVICE void load(const std::byte* from, Chunk<kBytes> (&chunks)[kUnroll]) const {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      chunks[u] = {};
      if (chunk(u) >= grid.count) continue;
      if (kBytes == kVector || aligned) {
        chunks[u] = loadPlain<kBytes>(from + offset(u));
      } else {
        chunks[u] = loadBytes<kBytes>(from + offset(u));
      }
    }
  }
  TUTTI_DEVICE void store(std::byte* to, const Chunk<kBytes> (&chunks)[kUnroll]) const {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (chunk(u) >= grid.count) continue;
      if (kBytes == kVector || aligned) {
        storePlain<kBytes>(to + offset(u), chunks[u]);
      } else {
        storeBytes<kBytes>(to + offset(u), chunks[u]);
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
    for (uint32_t k = 1; k < o.sourceCount; ++k) {
      if (k > 1) tile.load(o.source(k), next);
      fold(op, sums, next);
    }
    finish(op, sums, chunks);
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
  for (uint32_t k = 1; k < o.destinationCount; ++k) same = same && offsetOf(o.destination(k)) == first;
  for (uint32_t k = 0; k < o.sourceCount; ++k) same = same && offsetOf(o.source(k)) == first;
  return same ? first : bytes;
}

/// One piece, by all threads.
template <class Number>
TUTTI_DEVICE void movePiece(const Operands& o, const Operator<Number>& op, uint64_t bytes) {
  constexpr uint32_t kElement = sizeof(typename Number::Stored);
  constexpr int kUnroll = kElement == 1 ? 2 : 4;  // a byte becomes a register
  if (op.copies && o.destinationCount == 1 && o.source(0) == o.destination(0)) return;
  const uint32_t offset = commonOffset(o, kVector);
  const bool aligned = commonOffset(o, kElement) == 0;
  uint64_t head = bytes;
  uint64_t vectors = 0;
  if (offset != kVector && aligned) {
    head = (kVector - offset) % kVector;
    if (head > bytes) head = bytes;
    vectors = (bytes - head) / kVector;
  }
  // Before and behind the vectors.
  Grid rest{(bytes - vectors * kVector) / kElement, head / kElement, vectors * kVector, 0};
  if (TUTTI_PLANT == TUTTI_PLANT_LOST_REMAINDER) rest.count = head / kElement;
  if (TUTTI_PLANT == TUTTI_PLANT_BEHIND_END) ++rest.count;
  const Grid middle{vectors, ~0ull, 0, head};
  if (op.copies) {
    copyGrid<kVector, 4>(o, middle, true);
    copyGrid<kElement, 2>(o, rest, aligned);
  } else {
    reduceGrid<Number, kVector, kUnroll>(o, op, middle, true);
    reduceGrid<Number, kElement, 2>(o, op, rest, aligned);
  }
}

}  // namespace tutti::device::TUTTI_KERNELS
