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

template <int kBytes, int kUnroll>
struct Tile {
  uint64_t offsets[kUnroll];
  bool present[kUnroll];
  bool aligned;  // to kBytes

  TUTTI_DEVICE void load(const std::byte* from, Chunk<kBytes> (&chunks)[kUnroll]) const {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      chunks[u] = {};
      if (!present[u]) continue;
      if (kBytes == kVector || aligned) {
        chunks[u] = loadPlain<kBytes>(from + offsets[u]);
      } else {
        chunks[u] = loadBytes<kBytes>(from + offsets[u]);
      }
    }
  }
  TUTTI_DEVICE void store(std::byte* to, const Chunk<kBytes> (&chunks)[kUnroll]) const {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (!present[u]) continue;
      if (kBytes == kVector || aligned) {
        storePlain<kBytes>(to + offsets[u], chunks[u]);
      } else {
        storeBytes<kBytes>(to + offsets[u], chunks[u]);
      }
    }
  }
};

/// Chunks first, first + blockDim.x, ... of the grid.
template <int kBytes, int kUnroll>
TUTTI_DEVICE Tile<kBytes, kUnroll> tileAt(const Grid& grid, uint64_t first, bool aligned) {
  Tile<kBytes, kUnroll> tile;
  tile.aligned = aligned;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const uint64_t i = first + static_cast<uint64_t>(u) * blockDim.x;
    tile.present[u] = i < grid.count;
    tile.offsets[u] = grid.first + i * kBytes + (i >= grid.gapAfter ? grid.gap : 0);
  }
  return tile;
}

template <int kBytes, int kUnroll>
TUTTI_DEVICE void copyGrid(const Operands& o, const Grid& grid, bool aligned) {
  const std::byte* from = o.source(0);
  for (uint64_t first = threadIdx.x; first < grid.count;
       first += static_cast<uint64_t>(blockDim.x) * kUnroll) {
    const auto tile = tileAt<kBytes, kUnroll>(grid, first, aligned);
    Chunk<kBytes> chunks[kUnroll];
    tile.load(from, chunks);
    for (uint32_t k = 0; k < o.destinationCount; ++k) tile.store(o.destination(k), chunks);
  }
}

template <class Number, int kBytes, int kUnroll>
TUTTI_DEVICE void reduceGrid(const Operands& o, const Operator<Number>& op, const Grid& grid, bool aligned) {
  for (uint64_t first = threadIdx.x; first < grid.count;
       first += static_cast<uint64_t>(blockDim.x) * kUnroll) {
    const auto tile = tileAt<kBytes, kUnroll>(grid, first, aligned);
    Accumulator<Number, kBytes> sums[kUnroll];
    Chunk<kBytes> chunks[kUnroll];
    Chunk<kBytes> next[kUnroll] = {};
    tile.load(o.source(0), chunks);
    // Each source is asked for before the one before it is used: two are under way at once.
    if (o.sourceCount > 1) tile.load(o.source(1), next);
    start(op, sums, chunks);
    for (uint32_t k = 1; k < o.sourceCount; ++k) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) chunks[u] = next[u];
      if (k + 1 < o.sourceCount) tile.load(o.source(k + 1), next);
      fold(op, sums, chunks);
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
  const bool elementsAligned = commonOffset(o, kElement) == 0;
  if (offset == kVector || !elementsAligned) {
    const Grid all{bytes / kElement, ~0ull, 0, 0};
    if (op.copies) {
      copyGrid<kElement, 4>(o, all, elementsAligned);
    } else {
      reduceGrid<Number, kElement, 2>(o, op, all, elementsAligned);
    }
    return;
  }
  uint64_t head = (kVector - offset) % kVector;
  if (head > bytes) head = bytes;
  const uint64_t vectors = (bytes - head) / kVector;
  // Fewer elements than a warp has threads, before and behind the vectors.
  Grid ends{(bytes - vectors * kVector) / kElement, head / kElement, vectors * kVector, 0};
  if (TUTTI_PLANT == TUTTI_PLANT_LOST_REMAINDER) ends.count = head / kElement;
  if (TUTTI_PLANT == TUTTI_PLANT_BEHIND_END) ++ends.count;
  const Grid middle{vectors, ~0ull, 0, head};
  if (op.copies) {
    copyGrid<kVector, 4>(o, middle, true);
    copyGrid<kElement, 1>(o, ends, true);
  } else {
    reduceGrid<Number, kVector, kUnroll>(o, op, middle, true);
    reduceGrid<Number, kElement, 1>(o, op, ends, true);
  }
}

}  // namespace tutti::device::TUTTI_KERNELS
