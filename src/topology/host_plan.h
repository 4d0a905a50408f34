// What a host tells the others of its plan: bytes, small enough for jobs of 10,000 ranks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "topology/search.h"

namespace tutti {

constexpr uint8_t kNoRail = 0xff;
constexpr size_t kMaxRails = 254;
constexpr int32_t kMaxClusterRanks = 1 << 20;

/// A channel with rails (a host's ports, numbered in order) instead of nodes of a graph.
struct RailChannel {
  std::vector<uint16_t> order;  // indexes of HostPlan::ranks
  uint8_t railIn = kNoRail;
  uint8_t railOut = kNoRail;
  bool operator==(const RailChannel&) const = default;
};

struct RailChannels {
  ChannelPattern pattern = ChannelPattern::ring;
  PathType typeIntra = PathType::loc;
  PathType typeInter = PathType::loc;
  uint32_t intra = 0;  // MB/s a channel
  uint32_t inter = 0;  // 0 without ports
  std::vector<RailChannel> channels;
  bool operator==(const RailChannels&) const = default;

  uint32_t rate() const { return inter > 0 && inter < intra ? inter : intra; }
};

struct HostPlan {
  std::vector<int32_t> ranks;  // of the job, ascending
  RailChannels rings, trees;
  bool operator==(const HostPlan&) const = default;
};

/// A host's plan for the job's `ranks` (one for each member of the request). Fails where there are more ports
/// than kMaxRails.
Result<HostPlan> summarise(const Graph& graph, const SearchRequest& request, const ChannelPlan& plan,
                           const std::vector<int32_t>& ranks);

/// Little-endian: version, ranks as differences, rings, trees. A set: pattern, types, rates, the distinct
/// orders (channels that begin at different ranks of the same cycle share one), then per channel its order,
/// its beginning and its rails. 23 bytes a rank for a host of 8 GPUs and 16 ports.
std::string encodeHostPlan(const HostPlan& plan);

/// Takes any bytes: what is not exactly the encoding of a plan that is right in itself (every rank once in
/// every channel, ...) is an error that says what is wrong.
Result<HostPlan> decodeHostPlan(std::string_view bytes);

}  // namespace tutti
