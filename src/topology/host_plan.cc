#include "topology/host_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/wire.h"

namespace tutti {
namespace {

constexpr uint8_t kVersion = 1;

void writeVarint(uint32_t value, WireWriter* out) {
  for (; value >= 0x80; value >>= 7) out->u8(static_cast<uint8_t>(value | 0x80));
  out->u8(static_cast<uint8_t>(value));
}
/// At most five bytes, no superfluous ones.
Result<uint32_t> readVarint(WireReader* in) {
  uint64_t value = 0;
  for (int shift = 0; shift < 35; shift += 7) {
    const uint8_t byte = in->u8();
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte & 0x80) continue;
    if ((byte == 0 && shift > 0) || value > UINT32_MAX || !in->ok()) break;
    return static_cast<uint32_t>(value);
  }
  return remoteError("a number is cut off or too long");
}

void writeIndex(uint16_t index, size_t count, WireWriter* out) {
  if (count <= 256)
    out->u8(static_cast<uint8_t>(index));
  else
    out->u16(index);
}
uint16_t readIndex(size_t count, WireReader* in) { return count <= 256 ? in->u8() : in->u16(); }

/// The same cycle, from member 0 on.
std::vector<uint16_t> cycleOf(std::vector<uint16_t> order) {
  std::rotate(order.begin(), std::ranges::min_element(order), order.end());
  return order;
}

void writeChannels(const RailChannels& set, size_t ranks, WireWriter* out) {
  std::vector<std::vector<uint16_t>> cycles;
  std::vector<size_t> cycleOfChannel;
  for (const RailChannel& channel : set.channels) {
    std::vector<uint16_t> cycle = cycleOf(channel.order);
    const auto known = std::ranges::find(cycles, cycle);
    cycleOfChannel.push_back(static_cast<size_t>(known - cycles.begin()));
    if (known == cycles.end()) cycles.push_back(std::move(cycle));
  }
  out->u8(static_cast<uint8_t>(set.pattern))
      .u8(static_cast<uint8_t>(set.typeIntra))
      .u8(static_cast<uint8_t>(set.typeInter));
  out->u32(set.intra).u32(set.inter);
  out->u8(static_cast<uint8_t>(set.channels.size())).u8(static_cast<uint8_t>(cycles.size()));
  for (const std::vector<uint16_t>& cycle : cycles)
    for (const uint16_t member : cycle) writeIndex(member, ranks, out);
  for (size_t c = 0; c < set.channels.size(); ++c) {
    out->u8(static_cast<uint8_t>(cycleOfChannel[c]));
    writeIndex(set.channels[c].order[0], ranks, out);
    out->u8(set.channels[c].railIn).u8(set.channels[c].railOut);
  }
}

Status readCycles(const char* what, size_t count, size_t ranks, WireReader* in,
                  std::vector<std::vector<uint16_t>>* cycles) {
  for (size_t i = 0; i < count; ++i) {
    std::vector<bool> seen(ranks);
    std::vector<uint16_t>& cycle = cycles->emplace_back();
    for (size_t m = 0; m < ranks; ++m) {
      const uint16_t member = readIndex(ranks, in);
      if (!in->ok()) return remoteError("{}: the bytes end inside an order", what);
      if (member >= ranks || seen[member])
        return remoteError("{}: order {} has member {} twice, or there is none", what, i, member);
      if (m == 0 && member != 0) return remoteError("{}: order {} does not begin at member 0", what, i);
      seen[member] = true;
      cycle.push_back(member);
    }
    if (std::ranges::find(*cycles, cycle) != cycles->end() - 1)
      return remoteError("{}: order {} stands there twice", what, i);
  }
  return Status::ok();
}

Status readChannels(const char* what, bool ring, size_t ranks, WireReader* in, RailChannels* set) {
  const uint8_t pattern = in->u8(), intra = in->u8(), inter = in->u8();
  const bool isRing = pattern == static_cast<uint8_t>(ChannelPattern::ring);
  if (pattern < 1 || pattern > 4 || isRing != ring)
    return remoteError("{}: {} is none of their patterns", what, pattern);
  if (intra > static_cast<uint8_t>(PathType::dis) || inter > static_cast<uint8_t>(PathType::dis))
    return remoteError("{}: {} and {} are no path types", what, intra, inter);
  set->pattern = static_cast<ChannelPattern>(pattern);
  set->typeIntra = static_cast<PathType>(intra);
  set->typeInter = static_cast<PathType>(inter);
  set->intra = in->u32();
  set->inter = in->u32();
  const size_t channels = in->u8(), orders = in->u8();
  if (channels < 1 || channels > static_cast<size_t>(kMaxChannels) || orders < 1 || orders > channels)
    return remoteError("{}: {} channels with {} orders", what, channels, orders);
  std::vector<std::vector<uint16_t>> cycles;
  TUTTI_TRY(readCycles(what, orders, ranks, in, &cycles));
  size_t used = 0;
  for (size_t c = 0; c < channels; ++c) {
    RailChannel& channel = set->channels.emplace_back();
    const size_t order = in->u8();
    const uint16_t first = readIndex(ranks, in);
    channel.railIn = in->u8();
    channel.railOut = in->u8();
    if (!in->ok()) return remoteError("{}: the bytes end inside channel {}", what, c);
    // Orders stand where they are used first.
    if (order > used || order >= cycles.size() || first >= ranks)
      return remoteError("{}: channel {} has order {} from member {}", what, c, order, first);
    used = std::max(used, order + 1);
    if ((channel.railIn == kNoRail) != (channel.railOut == kNoRail) ||
        (channel.railIn == kNoRail) != (set->inter == 0))
      return remoteError("{}: channel {} has rails {} and {} at {} MB/s", what, c, channel.railIn,
                         channel.railOut, set->inter);
    channel.order = cycles[order];
    std::rotate(channel.order.begin(), std::ranges::find(channel.order, first), channel.order.end());
  }
  if (used != cycles.size()) return remoteError("{}: {} orders, and {} are used", what, cycles.size(), used);
  return Status::ok();
}

RailChannels withRails(const std::vector<NodeId>& nets, const ChannelSet& set) {
  RailChannels rails;
  rails.pattern = set.pattern;
  rails.typeIntra = set.typeIntra;
  rails.typeInter = set.typeInter;
  const auto megabytes = [](float rate) {
    return static_cast<uint32_t>(std::lround(std::min(rate, 4e6f) * 1000));
  };
  rails.intra = megabytes(set.intra);
  rails.inter = megabytes(set.inter);
  const auto rail = [&](NodeId node) {
    return node == kNoNode || rails.inter == 0
               ? kNoRail
               : static_cast<uint8_t>(std::ranges::find(nets, node) - nets.begin());
  };
  for (const Channel& channel : set.channels) {
    RailChannel& one = rails.channels.emplace_back();
    for (const int32_t member : channel.order) one.order.push_back(static_cast<uint16_t>(member));
    one.railIn = rail(channel.netIn);
    one.railOut = rail(channel.netOut);
  }
  return rails;
}

}  // namespace

Result<HostPlan> summarise(const Graph& graph, const SearchRequest& request, const ChannelPlan& plan,
                           const std::vector<int32_t>& ranks) {
  if (ranks.size() != request.members.size())
    return invalidArgument("{} ranks for {} members", ranks.size(), request.members.size());
  std::vector<NodeId> nets = graph.all(NodeType::net);
  std::erase_if(nets,
                [&](NodeId net) { return graph.node(net).host != graph.node(request.members[0]).host; });
  if (nets.size() > kMaxRails)
    return invalidUsage("{} network ports; at most {} can be used", nets.size(), kMaxRails);
  return HostPlan{ranks, withRails(nets, plan.rings), withRails(nets, plan.trees)};
}

std::string encodeHostPlan(const HostPlan& plan) {
  WireWriter out;
  out.u8(kVersion).u16(static_cast<uint16_t>(plan.ranks.size()));
  int32_t before = -1;
  for (const int32_t rank : plan.ranks) {
    writeVarint(static_cast<uint32_t>(rank - before - 1), &out);
    before = rank;
  }
  writeChannels(plan.rings, plan.ranks.size(), &out);
  writeChannels(plan.trees, plan.ranks.size(), &out);
  return std::move(out).bytes();
}

Result<HostPlan> decodeHostPlan(std::string_view bytes) {
  WireReader in(bytes);
  HostPlan plan;
  if (const uint8_t version = in.u8(); version != kVersion)
    return remoteError("a host's plan has version {}; {} is known", version, kVersion);
  const size_t ranks = in.u16();
  if (ranks < 1 || ranks > kMaxMembers) return remoteError("a host's plan has {} ranks", ranks);
  int64_t rank = -1;
  for (size_t i = 0; i < ranks; ++i) {
    TUTTI_ASSIGN(const uint32_t step, readVarint(&in));
    rank += int64_t{step} + 1;
    if (rank >= kMaxClusterRanks) return remoteError("a host's plan has rank {}", rank);
    plan.ranks.push_back(static_cast<int32_t>(rank));
  }
  TUTTI_TRY(readChannels("rings of a host's plan", true, ranks, &in, &plan.rings));
  TUTTI_TRY(readChannels("trees of a host's plan", false, ranks, &in, &plan.trees));
  if (!in.finished()) return remoteError("{} bytes after a host's plan", in.left());
  return plan;
}

}  // namespace tutti
