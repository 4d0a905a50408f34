// What the ranks of a communicator agree on about the machines that they run on: the rings and trees of the
// job.
//
//   rank            host                                  job
//   what it sees -> (where ranks see different things:    a plan of each host (its lowest rank searches) ->
//   its NUMA node    all descriptions, fused)             ClusterPlan, the same on all ranks
//    (PeerInfo)            a gather, rarely                      a gather
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/oob.h"
#include "base/status.h"
#include "core/host_topology.h"
#include "topology/cluster_plan.h"
#include "transport/endpoint.h"

namespace tutti {

struct JobPlan {
  int hosts = 1;
  /// All ranks, as the first ring passes them: host by host.
  std::vector<int32_t> ring;
  /// Bytes/s that every host can send to the next, by all rings; 0: not known (a host without ports), or
  /// there is one host.
  double linkBandwidth = 0;
  /// Bytes/s that a GPU of a host sends, by all rings of the host; 0: not known.
  double deviceBandwidth = 0;
  /// On some machine ranks outnumber processors. Hosts may share one: they are containers then.
  bool crowded = false;
};

/// JobPlan::crowded. Ranks that do not know their machine are counted by host.
bool isCrowded(const std::vector<PeerInfo>& peers);

/// Collective over all ranks of `oob`: a gather, two where ranks of a host see different hardware.
/// Writes NCCL_GRAPH_DUMP_FILE where this is its rank. Fails on all ranks when NCCL_GRAPH_FILE cannot be
/// understood on one host; the error names file, line and reason.
Result<JobPlan> planJob(const std::vector<PeerInfo>& peers, const HostTopology& host, OobChannel& oob,
                        Deadline deadline);

}  // namespace tutti
