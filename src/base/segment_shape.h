// How a block of elements is cut into channels, parts and slices: the arithmetic that host and kernels share.
// Everything is constexpr, so that kernels can call it (nvcc --expt-relaxed-constexpr); all numbers are
// elements.
//
//   block    |<-------------------- count --------------------->|
//   channels |     share of channel 0   |    of channel 1       |
//   parts    |  part 0  |  part 1  | .. |                       |    equally long, the last may be short
//   slices   |s0|s1|s2| |s0|s1|s2| |                                 slice k of every part at once
#pragma once

#include <cstdint>

namespace tutti {

/// Parts start on cache lines, so that no two ranks write one line.
constexpr uint64_t kPartAlignBytes = 64;

/// The longest of `parts` parts of `count` elements, a multiple of `alignElements`.
constexpr uint64_t partLength(uint64_t count, uint64_t parts, uint64_t alignElements) {
  const uint64_t equal = (count + parts - 1) / parts;
  return (equal + alignElements - 1) / alignElements * alignElements;
}

/// A channel's share of a block, and how long its parts are.
struct BlockShape {
  uint64_t shareFirst = 0;
  uint64_t shareCount = 0;
  uint64_t partElements = 0;
};

constexpr BlockShape blockShape(uint64_t count, uint32_t channel, uint32_t channels, uint32_t parts,
                                uint32_t elementBytes) {
  const uint64_t align = elementBytes >= kPartAlignBytes ? 1 : kPartAlignBytes / elementBytes;
  const uint64_t length = partLength(count, channels, align);
  BlockShape block;
  block.shareFirst = count < length * channel ? count : length * channel;
  const uint64_t rest = count - block.shareFirst;
  block.shareCount = length < rest ? length : rest;
  block.partElements = partLength(block.shareCount, parts, align);
  return block;
}

/// Elements from the start of the block, and how many; count is 0 where the slice lies behind the part's end.
struct PieceShape {
  uint64_t first = 0;
  uint64_t count = 0;
};

constexpr PieceShape pieceShape(const BlockShape& block, uint32_t part, uint64_t slice,
                                uint64_t sliceElements) {
  const uint64_t partStart = block.partElements * part;
  const uint64_t partFirst = block.shareCount < partStart ? block.shareCount : partStart;
  const uint64_t left = block.shareCount - partFirst;
  const uint64_t partCount = block.partElements < left ? block.partElements : left;
  const uint64_t sliceStart = sliceElements * slice;
  const uint64_t sliceFirst = partCount < sliceStart ? partCount : sliceStart;
  const uint64_t rest = partCount - sliceFirst;
  return {block.shareFirst + partFirst + sliceFirst, sliceElements < rest ? sliceElements : rest};
}

/// Slices of the block's longest part, at least 1.
constexpr uint64_t sliceCount(const BlockShape& block, uint64_t sliceElements) {
  const uint64_t longest = block.partElements < block.shareCount ? block.partElements : block.shareCount;
  const uint64_t slices = (longest + sliceElements - 1) / sliceElements;
  return slices == 0 ? 1 : slices;
}

}  // namespace tutti
