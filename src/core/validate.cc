#include "core/validate.h"

#include <algorithm>
#include <numeric>

namespace tutti {

Status checkType(ncclDataType_t type) {
  if (type < 0 || type >= ncclNumTypes) {
    return invalidArgument("data type {} does not exist (0..{})", static_cast<int>(type), ncclNumTypes - 1);
  }
  return Status::ok();
}

Status checkRoot(int root, int ranks) {
  if (root < 0 || root >= ranks)
    return invalidArgument("root {} is not a rank of this communicator (0..{})", root, ranks - 1);
  return Status::ok();
}

Status checkPeer(int peer, int ranks) {
  if (peer < 0 || peer >= ranks)
    return invalidArgument("peer {} is not a rank of this communicator (0..{})", peer, ranks - 1);
  return Status::ok();
}

Status checkBuffer(const void* buffer, size_t count, const char* what) {
  if (buffer == nullptr && count != 0) return invalidArgument("{} is null, but the count is {}", what, count);
  return Status::ok();
}

Status checkSize(size_t count, size_t elementBytes, int blocks) {
  const auto limit = static_cast<size_t>(PTRDIFF_MAX) / elementBytes / static_cast<size_t>(blocks);
  if (count > limit) {
    return invalidArgument(
        "count {} is too large: {} blocks of {}-byte elements do not fit the address space", count, blocks,
        elementBytes);
  }
  return Status::ok();
}

Status checkOverlap(const NamedBuffer& send, const NamedBuffer& recv, bool inPlace) {
  if (inPlace || send.bytes == 0 || recv.bytes == 0) return Status::ok();
  const auto from = reinterpret_cast<uintptr_t>(send.start);
  const auto to = reinterpret_cast<uintptr_t>(recv.start);
  if (from + send.bytes <= to || to + recv.bytes <= from) return Status::ok();
  return invalidArgument(
      "{} ({}, {} bytes) and {} ({}, {} bytes) overlap, but not as a call in place has them", send.what,
      send.start, send.bytes, recv.what, static_cast<const void*>(recv.start), recv.bytes);
}

namespace {

Status checkDisjoint(const BlockSizes& sizes, const BlockArguments& arguments) {
  std::vector<size_t> order;
  for (size_t block = 0; block < sizes.counts.size(); ++block)
    if (sizes.counts[block] != 0) order.push_back(block);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return sizes.offsets[a] < sizes.offsets[b]; });
  for (size_t i = 1; i < order.size(); ++i) {
    const size_t before = order[i - 1];
    if (sizes.offsets[before] + sizes.counts[before] <= sizes.offsets[order[i]]) continue;
    return invalidArgument("{}: the blocks of ranks {} and {} overlap ({} elements at {}, next at {})",
                           arguments.displacementsName, before, order[i], sizes.counts[before],
                           sizes.offsets[before], sizes.offsets[order[i]]);
  }
  return Status::ok();
}

}  // namespace

Result<BlockSizes> readBlocks(const BlockArguments& arguments, int ranks, size_t elementBytes) {
  if (arguments.counts == nullptr) return invalidArgument("{} is null", arguments.countsName);
  const auto blocks = static_cast<size_t>(ranks);
  const size_t limit = static_cast<size_t>(PTRDIFF_MAX) / elementBytes;
  BlockSizes sizes;
  sizes.counts.assign(arguments.counts, arguments.counts + blocks);
  sizes.offsets.resize(blocks);
  size_t next = 0;
  for (size_t block = 0; block < blocks; ++block) {
    const size_t count = sizes.counts[block];
    const size_t offset = arguments.displacements == nullptr ? next : arguments.displacements[block];
    // What an empty block's place is does not matter.
    if (count > limit || next > limit - count || (count != 0 && offset > limit - count)) {
      return invalidArgument(
          "{}[{}] is {}, at element {}: blocks of {}-byte elements do not fit the address space",
          arguments.countsName, block, count, offset, elementBytes);
    }
    sizes.offsets[block] = count == 0 ? 0 : offset;
    next += count;
  }
  if (arguments.disjoint && arguments.displacements != nullptr) TUTTI_TRY(checkDisjoint(sizes, arguments));
  return sizes;
}

}  // namespace tutti
