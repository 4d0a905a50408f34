// Checks of arguments that every call makes before anything else happens.
#pragma once

#include <cstddef>

#include "algorithms/segment_table.h"
#include "base/status.h"
#include "nccl.h"

namespace tutti {

Status checkType(ncclDataType_t type);
Status checkRoot(int root, int ranks);
Status checkPeer(int peer, int ranks);
/// `buffer` may be null only when count is 0. `what` names it in the error ("sendbuff").
Status checkBuffer(const void* buffer, size_t count, const char* what);
/// A buffer of a call, with the argument's name.
struct NamedBuffer {
  const void* start = nullptr;
  size_t bytes = 0;
  const char* what = "";
};
/// Sending and receiving buffer must not overlap, unless the call is `inPlace` as its collective defines
/// that.
Status checkOverlap(const NamedBuffer& send, const NamedBuffer& recv, bool inPlace);
/// count elements of `elementBytes`, times `blocks`, must be addressable.
Status checkSize(size_t count, size_t elementBytes, int blocks);

/// The block sizes that a call gives as arrays with one entry a rank, in elements. `displacements` may be
/// null: blocks lie one behind the other. `disjoint`: they must not overlap. Errors name the argument and the
/// ranks.
struct BlockArguments {
  const size_t* counts = nullptr;
  const size_t* displacements = nullptr;
  const char* countsName = "";
  const char* displacementsName = "";
  bool disjoint = false;
};
Result<BlockSizes> readBlocks(const BlockArguments& arguments, int ranks, size_t elementBytes);

}  // namespace tutti
