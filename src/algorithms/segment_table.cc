#include "algorithms/segment_table.h"

#include <algorithm>
#include <numeric>

namespace tutti {
namespace {

constexpr size_t kAlignBytes = 64;  // parts start on cache lines, so that no two ranks write one line

size_t roundUp(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

size_t partLength(size_t count, int parts, size_t alignElements) {
  return roundUp((count + static_cast<size_t>(parts) - 1) / static_cast<size_t>(parts), alignElements);
}

bool hasOneBlock(Collective collective) {
  return collective == Collective::allReduce || collective == Collective::broadcast ||
         collective == Collective::reduce || collective == Collective::sendRecv;
}

}  // namespace

ElementRange splitEvenly(size_t count, int parts, int index, size_t alignElements) {
  const size_t length = partLength(count, parts, alignElements);
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
    slices_ = slicesOf(equal_);
    return;
  }
  const BlockSizes& sizes = *shape.blocks;
  blocks_.reserve(sizes.counts.size());
  for (size_t block = 0; block < sizes.counts.size(); ++block) {
    blocks_.push_back(makeBlock(sizes.offsets[block], sizes.counts[block]));
    slices_ = std::max(slices_, slicesOf(blocks_.back()));
  }
}

SegmentTable::Block SegmentTable::makeBlock(size_t offset, size_t count) const {
  const size_t alignElements = std::max<size_t>(1, kAlignBytes / shape_.elementBytes);
  Block block;
  block.offset = offset;
  block.share = splitEvenly(count, shape_.channels, shape_.channel, alignElements);
  block.partElements = partLength(block.share.count, shape_.parts, alignElements);
  return block;
}

size_t SegmentTable::slicesOf(const Block& block) const {
  const size_t longest = std::min(block.partElements, block.share.count);
  return std::max<size_t>(1, (longest + sliceElements_ - 1) / sliceElements_);
}

Piece SegmentTable::piece(Buffer buffer, int32_t block, int32_t part, size_t slice, int32_t rank) const {
  (void)rank;  // all ranks' buffers are cut alike
  const bool differ = !blocks_.empty();
  const Block& own = differ ? blocks_[static_cast<size_t>(block)] : equal_;
  const size_t partFirst = std::min(own.share.count, own.partElements * static_cast<size_t>(part));
  const size_t partCount = std::min(own.partElements, own.share.count - partFirst);
  const size_t sliceFirst = std::min(partCount, sliceElements_ * slice);
  const size_t elements = std::min(sliceElements_, partCount - sliceFirst);
  size_t blockFirst = 0;
  if (holdsAllBlocks(shape_.collective, buffer))
    blockFirst = differ ? own.offset : static_cast<size_t>(block) * shape_.count;
  return {(blockFirst + own.share.first + partFirst + sliceFirst) * shape_.elementBytes,
          elements * shape_.elementBytes};
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
