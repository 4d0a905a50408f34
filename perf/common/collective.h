// What a perf program measures: one collective, described by data and one call.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/tile.h"

namespace tutti::perf {

/// Element counts of one call. Buffers in place start at the same address: `inPlaceSend` and `inPlaceRecv`
/// are the offsets, in elements, of the two in that one buffer.
struct CallShape {
  size_t send = 0;   // elements that a rank sends
  size_t recv = 0;   // elements that a rank receives
  size_t count = 0;  // what the call is given
  size_t inPlaceSend = 0;
  size_t inPlaceRecv = 0;
  size_t total = 0;  // what "size" and the bandwidth mean
};

/// Expected contents of a part of the receive buffer: `count` elements from `offset` are elements 'first' and
/// on of the tile `which` (a rank's contribution, or kResult).
struct Segment {
  size_t offset = 0;
  size_t count = 0;
  int which = kResult;
  uint64_t first = 0;
};

/// One call on one rank.
struct Call {
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  int rank = 0;
  int ranks = 1;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  size_t total = 0;  // CallShape::total
  int round = 0;     // of Collective::rounds()
};

/// Stateless; all methods are thread-safe.
class Collective {
 public:
  virtual ~Collective() = default;

  /// Of the program, such as "all_reduce_perf".
  virtual const char* name() const = 0;
  /// As NCCL_ALGO spells it; empty where no algorithm of the library's is chosen (it is made of messages).
  virtual const char* function() const { return ""; }
  virtual bool reduces() const { return false; }
  virtual bool hasRoot() const { return false; }
  virtual bool hasInPlace() const { return true; }
  /// For about `elements` elements of `typeBytes` bytes.
  virtual CallShape shape(size_t elements, size_t typeBytes, int rank, int ranks) const = 0;
  /// Part of `total` that the algorithm bandwidth counts.
  virtual double algorithmFactor(int ranks) const {
    (void)ranks;
    return 1;
  }
  /// Bus bandwidth over algorithm bandwidth.
  virtual double busFactor(int ranks) const = 0;
  /// One operation may consist of several groups of calls, each of which needs the results of the one before.
  virtual int rounds(int ranks) const {
    (void)ranks;
    return 1;
  }
  /// What lies in the receive buffer afterwards. Parts without a segment must be as before.
  virtual std::vector<Segment> expected(const CallShape& shape, int rank, int ranks, int root) const = 0;
  /// Round `call.round` of the operation on one rank.
  virtual ncclResult_t enqueue(const Call& call) const = 0;
};

/// The elements of one rank's block when `elements` are divided among `ranks`: rounded down to whole 16-byte
/// units where that leaves something, as nccl-tests does.
size_t blockElements(size_t elements, size_t typeBytes, int ranks);

}  // namespace tutti::perf
