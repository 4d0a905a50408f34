// The job that tutti-topo assumes: NCCL's variables from the environment, as a job would have them.
#pragma once

#include <string>
#include <vector>

#include "topology/explain.h"
#include "topology/search.h"

namespace tutti::topo {

struct Job {
  PathOptions paths;             // NCCL_PXN_DISABLE, NCCL_NVB_DISABLE
  ConnectionLevels levels;       // NCCL_P2P_LEVEL (LOC for NCCL_P2P_DISABLE), NCCL_NET_GDR_LEVEL
  SearchRequest search;          // NCCL_CROSS_NIC, NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS
  std::vector<std::string> set;  // "NCCL_CROSS_NIC=0": what the environment decides
};

/// Fails with the variable, its value and what it may be.
Result<Job> jobOfEnvironment();

/// A host's plan for that job.
struct HostPlan {
  SearchRequest request;
  ChannelPlan plan;
};
/// Of the first host; `acrossHosts`: as one of several. `graphFile`: what NCCL_GRAPH_FILE says, where not
/// empty.
Result<HostPlan> planOf(const Graph& graph, const Paths& paths, const Job& job, bool acrossHosts,
                        const std::string& graphFile);

}  // namespace tutti::topo
