// One call of the API, after its arguments were checked.
#pragma once

#include <cstddef>
#include <memory>

#include "algorithms/schedule.h"
#include "algorithms/segment_table.h"
#include "executor/host/reduction.h"
#include "nccl.h"

namespace tutti {

/// The scalar of a PreMulSum operator. Immediate scalars are in `spec` already; resident ones are read from
/// `device` when the operation runs, as CUDA's stream order demands.
struct OperatorUse {
  ReductionSpec spec;
  const void* residentScalar = nullptr;
  bool ownScalar = false;  // made by the user: other ranks may multiply by something else
};

/// A collective or one point-to-point message of one rank, ready to be enqueued. `count` is in elements per
/// block (Schedule::blocks()), or in all where `blocks` says that they differ. For send and receive,
/// collective is sendRecv and `root` the other rank; `copy` is a message from the rank to itself with both
/// ends known.
struct Operation {
  enum class Kind : uint8_t { collective, send, recv, copy };
  static constexpr int kNoPeer = -1;
  Kind kind = Kind::collective;
  Collective collective = Collective::allReduce;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  size_t receivedCount = 0;  // of a message to oneself: what its receiving side expects
  ncclDataType_t type = ncclInt8;
  OperatorUse reduction;
  int root = 0;                   // or the peer of a message; kNoPeer of a copy
  bool partOfCollective = false;  // a message that a collective is made of: never paired with the user's
  std::shared_ptr<const BlockSizes> blocks = nullptr;
  cudaStream_t stream = nullptr;
};

}  // namespace tutti
