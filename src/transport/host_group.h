// Which ranks share memory with this one, and that memory: what every rank of a communicator finds out
// together when its endpoint is made.
//
//   1. Everyone tells host, process, settings; the lowest rank of each host with several processes has made a
//      memory file and offers it.
//   2. The others fetch its descriptor and map it. Everyone tells whether that worked.
//   3. Where it did not: the lowest rank makes a named segment in /dev/shm; the others open it; everyone
//   tells
//      again; the name is removed. Where that fails too, the host falls apart into its processes.
//
// All ranks see the same table after each step, so all come to the same groups without a coordinator.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/deadline.h"
#include "base/fault_state.h"
#include "base/hmac.h"
#include "base/oob.h"
#include "base/status.h"
#include "transport/endpoint.h"
#include "transport/host_segment.h"
#include "transport/memory_service.h"

namespace tutti {

struct HostGroup {
  std::vector<int> ranks;  // that share memory with this rank, ascending, itself included
  /// All groups of the communicator, the same on all ranks: ascending in each, by their lowest ranks.
  std::vector<std::vector<int>> all;
  std::shared_ptr<HostSegment> segment;
  /// Same for all ranks: false when every rank of the communicator is in one group.
  bool needsMessages = false;
  /// Ranks of the group may use each other's buffers (NCCL_P2P_DISABLE is not set anywhere).
  bool directBuffers = true;
  /// Passes this process's memory files; null when the group is one process, or descriptors cannot be passed.
  std::unique_ptr<MemoryService> memory;
  std::vector<MemoryServiceAddress> memoryAddresses;  // by rank
};

/// Collective over all ranks.
Result<HostGroup> joinHostGroup(const std::vector<PeerInfo>& peers, int rank, const EndpointOptions& options,
                                const Secret& secret, OobChannel& oob, const FaultState* faults,
                                Deadline deadline);

}  // namespace tutti
