// The collective and point-to-point calls: arguments checked, operation made, handed to the group.
#pragma once

#include <cstddef>

#include "algorithms/schedule.h"
#include "base/status.h"
#include "nccl.h"

namespace tutti {

/// Arguments of a collective call as the API has them; `count` is per block (per rank where a buffer holds
/// one block for every rank), `root` and `op` are ignored where the collective has none.
struct CollectiveCall {
  Collective collective = Collective::allReduce;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};
Status callCollective(const CollectiveCall& call);

Status callSend(const void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                cudaStream_t stream);
Status callRecv(void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                cudaStream_t stream);

}  // namespace tutti
