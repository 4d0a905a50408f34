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

SegmentTable::SegmentTable(const CallShape& shape)
    : shape_(shape),
      blockElements_(shape.count),
      share_(splitEvenly(shape.count, shape.channels, shape.channel,
                         std::max<size_t>(1, kAlignBytes / shape.elementBytes))),
      partElements_(
          partLength(share_.count, shape.parts, std::max<size_t>(1, kAlignBytes / shape.elementBytes))),
      sliceElements_(std::max<size_t>(1, shape.sliceBytes / shape.elementBytes)),
      slices_(std::max<size_t>(
          1, (std::min(partElements_, share_.count) + sliceElements_ - 1) / sliceElements_)) {}

Piece SegmentTable::piece(Buffer buffer, int32_t block, int32_t part, size_t slice, int32_t rank) const {
  (void)rank;  // offsets depend on the rank once blocks differ in size
  const size_t partFirst = std::min(share_.count, partElements_ * static_cast<size_t>(part));
  const size_t partCount = std::min(partElements_, share_.count - partFirst);
  const size_t sliceFirst = std::min(partCount, sliceElements_ * slice);
  const size_t elements = std::min(sliceElements_, partCount - sliceFirst);
  const size_t blockFirst =
      holdsAllBlocks(shape_.collective, buffer) ? static_cast<size_t>(block) * blockElements_ : 0;
  return {(blockFirst + share_.first + partFirst + sliceFirst) * shape_.elementBytes,
          elements * shape_.elementBytes};
}

size_t SegmentTable::bufferBytes(Buffer buffer, int32_t rank) const {
  const auto ranks = static_cast<size_t>(shape_.ranks);
  const bool isRoot = rank == shape_.root;
  const size_t block = blockElements_ * shape_.elementBytes;
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
