// Collectives whose blocks differ in size: the calls of tutti/tutti.h.
//
//   AllGatherv, ReduceScatterv   all ranks know all counts: the ordinary schedules, with a table of block
//   sizes AlltoAllv, Gatherv, Scatterv only the two ends of a pair know its count: one message a pair, in one
//   group
#pragma once

#include <cstddef>

#include "algorithms/schedule.h"
#include "base/status.h"
#include "nccl.h"

namespace tutti {

/// Arrays with one entry a rank, in elements; displacements may be null (blocks one behind the other).
struct BlockArrays {
  const size_t* counts = nullptr;
  const size_t* displacements = nullptr;
};

/// Arguments of AllGatherv, ReduceScatterv, Gatherv and Scatterv (by `collective`). `blocks` describes the
/// buffer that holds a block for every rank, `ownCount` is the size of the other. The arrays are read during
/// the call only; Gatherv and Scatterv read them on the root only.
struct VariableCall {
  Collective collective = Collective::allGather;
  const void* input = nullptr;
  void* output = nullptr;
  size_t ownCount = 0;
  BlockArrays blocks;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};
Status callVariable(const VariableCall& call);

struct AllToAllvCall {
  const void* input = nullptr;
  BlockArrays sent;
  void* output = nullptr;
  BlockArrays received;
  ncclDataType_t type = ncclInt8;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};
Status callAllToAllv(const AllToAllvCall& call);

}  // namespace tutti
