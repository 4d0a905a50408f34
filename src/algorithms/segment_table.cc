#include "algorithms/segment_table.h"

#include <algorithm>
#include <numeric>

#include "base/segment_shape.h"

namespace tutti {
namespace {

bool hasOneBlock(Collective collective) {
  return collective == Collective::allReduce || collective == Collective::broadcast ||
         collective == Collective::reduce || collective == Collective::sendRecv;
}

}  // namespace

ElementRange splitEvenly(size_t count, int parts, int index, size_t alignElements) {
  const size_t length = partLength(count, static_cast<size_t>(parts), alignElements);
  const size_t first = std::min(count, length * static_cast<size_t>(index));
  return {first, std::min(length, count - first)};
}

bool holdsAllBlocks(Collective collective, Buffer buffer) {
  switch (collective) {
    case Collective::allToAll:
      return true;
    case Collective::allGather:
    case Collective::gather:
      return buffer == Buffer::output;
    case Collective::reduceScatter:
    case Collective::scatter:
      return buffer == Buffer::input;
    default:
      return false;
  }
}

size_t BlockSizes::total() const { return std::accumulate(counts.begin(), counts.end(), size_t{0}); }

size_t BlockSizes::extent() const {
  size_t end = 0;
  for (size_t block = 0; block < counts.size(); ++block)
    if (counts[block] != 0) end = std::max(end, offsets[block] + counts[block]);
  return end;
}

bool BlockSizes::contiguous() const {
  size_t next = 0;
  for (size_t block = 0; block < counts.size(); ++block) {
    if (counts[block] != 0 && offsets[block] != next) return false;
    next += counts[block];
  }
  return true;
}

SegmentTable::SegmentTable(const CallShape& shape)
    : shape_(shape), sliceElements_(std::max<size_t>(1, shape.sliceBytes / shape.elementBytes)), slices_(1) {
  if (shape.blocks == nullptr) {
    equal_ = makeBlock(0, shape.count);
    slices_ = sliceCount(equal_.shape, sliceElements_);
    return;
  }
  const BlockSizes& sizes = *shape.blocks;
  blocks_.reserve(sizes.counts.size());
  for (size_t block = 0; block < sizes.counts.size(); ++block) {
    blocks_.push_back(makeBlock(sizes.offsets[block], sizes.counts[block]));
    slices_ = std::max<size_t>(slices_, sliceCount(blocks_.back().shape, sliceElements_));
  }
}

SegmentTable::Block SegmentTable::makeBlock(size_t offset, size_t count) const {
  return {offset,
          blockShape(count, static_cast<uint32_t>(shape_.channel), static_cast<uint32_t>(shape_.channels),
                     static_cast<uint32_t>(shape_.parts), static_cast<uint32_t>(shape_.elementBytes))};
}

Piece SegmentTable::piece(Buffer buffer, int32_t block, int32_t part, size_t slice, int32_t rank) const {
  (void)rank;  // all ranks' buffers are cut alike
  const bool differ = !blocks_.empty();
  const Block& own = differ ? blocks_[static_cast<size_t>(block)] : equal_;
  const PieceShape piece = pieceShape(own.shape, static_cast<uint32_t>(part), slice, sliceElements_);
  size_t blockFirst = 0;
  if (holdsAllBlocks(shape_.collective, buffer))
    blockFirst = differ ? own.offset : static_cast<size_t>(block) * shape_.count;
  return {(blockFirst + piece.first) * shape_.elementBytes, piece.count * shape_.elementBytes};
}

size_t SegmentTable::bufferBytes(Buffer buffer, int32_t rank) const {
  if (shape_.blocks != nullptr) {
    const BlockSizes& sizes = *shape_.blocks;
    const bool all = holdsAllBlocks(shape_.collective, buffer);
    return (all ? sizes.extent() : sizes.counts[static_cast<size_t>(rank)]) * shape_.elementBytes;
  }
  const auto ranks = static_cast<size_t>(shape_.ranks);
  const bool isRoot = rank == shape_.root;
  const size_t block = shape_.count * shape_.elementBytes;
  if (holdsAllBlocks(shape_.collective, buffer)) {
    const bool rooted = shape_.collective == Collective::gather || shape_.collective == Collective::scatter;
    return rooted && !isRoot ? 0 : ranks * block;
  }
  if (hasOneBlock(shape_.collective)) {
    if (shape_.collective == Collective::broadcast && buffer == Buffer::input && !isRoot) return 0;
    if (shape_.collective == Collective::reduce && buffer == Buffer::output && !isRoot) return 0;
    if (shape_.collective == Collective::sendRecv && (buffer == Buffer::input) != isRoot) return 0;
  }
  return block;
}

}  // namespace tutti
