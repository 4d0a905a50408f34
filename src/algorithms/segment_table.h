// Where the segments of a schedule lie in the buffers of one call: pure arithmetic, shared by all readers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "algorithms/schedule.h"
#include "base/segment_shape.h"

namespace tutti {

/// Offset (from the start of a buffer) and length in bytes.
struct Piece {
  size_t offset = 0;
  size_t bytes = 0;
  friend bool operator==(const Piece&, const Piece&) = default;
};

/// Part `index` of `count` elements cut into `parts` parts, as equal as alignment to `alignElements` allows;
/// trailing parts may be short or empty. In elements.
struct ElementRange {
  size_t first = 0;
  size_t count = 0;
};
ElementRange splitEvenly(size_t count, int parts, int index, size_t alignElements);

/// Blocks of different sizes, one a rank, in elements: of a buffer that holds a block for every rank. Counts
/// are the same on all ranks, offsets may be each rank's own.
struct BlockSizes {
  std::vector<size_t> counts;
  std::vector<size_t> offsets;

  size_t total() const;
  /// Elements from the start of the buffer to the end of the last block.
  size_t extent() const;
  /// True when the blocks lie one behind the other, in the order of the ranks.
  bool contiguous() const;
};

/// The sizes of one call. `count` is elements per block (Schedule::blocks()); channel `channel` of `channels`
/// handles its share of every block.
struct CallShape {
  Collective collective = Collective::allReduce;
  int32_t ranks = 1;
  int32_t root = 0;
  int32_t parts = 1;
  size_t count = 0;
  size_t elementBytes = 1;
  int32_t channel = 0;
  int32_t channels = 1;
  size_t sliceBytes = 0;  // a multiple of elementBytes and of 64
  /// Set where blocks differ (allGather, reduceScatter); `count` does not matter then. Peers' buffers that
  /// hold all blocks are taken to have the same offsets.
  std::shared_ptr<const BlockSizes> blocks = nullptr;
  friend bool operator==(const CallShape&, const CallShape&) = default;
};

/// Gives the piece of memory that a (buffer, segment, slice) stands for, on any rank: peers' offsets are
/// computed, not exchanged. Cheap enough to be asked for at every step.
class SegmentTable {
 public:
  explicit SegmentTable(const CallShape& shape);

  const CallShape& shape() const { return shape_; }
  /// Runs of the program: enough for the longest segment, at least 1 (a call of zero bytes still exchanges
  /// messages).
  size_t slices() const { return slices_; }

  /// Offset in the user's input or output buffer of rank `rank`, and bytes, of segment `segment` in slice
  /// `slice`. bytes is 0 where the slice lies behind the segment's end. `buffer` is not scratch.
  Piece piece(Buffer buffer, int32_t segment, size_t slice, int32_t rank) const {
    return piece(buffer, segment / shape_.parts, segment % shape_.parts, slice, rank);
  }
  /// The same for a segment number that was split into block and part before.
  Piece piece(Buffer buffer, int32_t block, int32_t part, size_t slice, int32_t rank) const;

  /// Bytes of the segment's piece in that slice, whatever buffer it is in (also scratch: a scratch location
  /// holds the piece of the data segment that the step moved into it).
  size_t bytes(int32_t segment, size_t slice) const {
    return bytes(segment / shape_.parts, segment % shape_.parts, slice);
  }
  size_t bytes(int32_t block, int32_t part, size_t slice) const {
    return piece(Buffer::input, block, part, slice, 0).bytes;
  }

  /// Bytes in the user's input / output buffer of `rank` that the whole call covers (all channels).
  size_t bufferBytes(Buffer buffer, int32_t rank) const;

 private:
  /// One block: where it lies, and how it is cut.
  struct Block {
    size_t offset = 0;
    BlockShape shape;
  };
  Block makeBlock(size_t offset, size_t count) const;

  CallShape shape_;
  size_t sliceElements_;
  Block equal_;                // of any block when all have `count` elements; offset 0
  std::vector<Block> blocks_;  // when they differ
  size_t slices_;
};

/// True when `buffer` of this collective holds one block for every rank on rank `rank` (false: the own block
/// only, or the collective has a single block).
bool holdsAllBlocks(Collective collective, Buffer buffer);

}  // namespace tutti
