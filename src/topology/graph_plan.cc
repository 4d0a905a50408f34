// Plans as graph XML describes them, and back.
#include <algorithm>
#include <utility>

#include "topology/graph_xml.h"

namespace tutti {
namespace {

uint64_t numberOf(const Graph& graph, NodeId id) {
  return static_cast<uint64_t>(std::max(0, graph.node(id).number));
}

GraphDescription describe(const Graph& graph, const SearchRequest& request, const ChannelSet& set,
                          int32_t id) {
  GraphDescription description;
  description.id = id;
  description.pattern = static_cast<int32_t>(set.pattern);
  description.crossNic = set.crossNic ? 1 : 0;
  description.channelCount = static_cast<int32_t>(set.channels.size());
  description.speedIntra = set.intra;
  description.speedInter = set.hasPorts() ? set.inter : set.intra;
  description.typeIntra = set.typeIntra;
  description.typeInter = set.hasPorts() ? set.typeInter : PathType::loc;
  description.sameChannels = set.sameChannels;
  for (const Channel& channel : set.channels) {
    GraphChannelDescription& one = description.channels.emplace_back();
    if (channel.netIn != kNoNode) one.netIn = numberOf(graph, channel.netIn);
    if (channel.netOut != kNoNode) one.netOut = numberOf(graph, channel.netOut);
    for (const int32_t member : channel.order)
      one.gpus.push_back(numberOf(graph, request.members[static_cast<size_t>(member)]));
  }
  return description;
}

class Applier {
 public:
  Applier(std::string_view fileName, const Graph& graph, const SearchRequest& request)
      : fileName_(fileName), graph_(graph), request_(request) {}

  Status apply(const GraphDescription& from, ChannelSet* set) const {
    const bool isRing = from.id == kGraphRing;
    if (isRing != (from.pattern == static_cast<int32_t>(ChannelPattern::ring)) ||
        from.pattern > static_cast<int32_t>(ChannelPattern::ring))
      return invalidUsage("{}: <graph id=\"{}\">: attribute pattern=\"{}\" is none of a {}", where(from.line),
                          from.id, from.pattern, isRing ? "ring (4)" : "tree (1, 2, 3)");
    if (from.channels.empty() || from.channels.size() > static_cast<size_t>(kMaxChannels))
      return invalidUsage("{}: <graph id=\"{}\">: {} channels; there must be 1 to {}", where(from.line),
                          from.id, from.channels.size(), kMaxChannels);
    std::vector<Channel> channels;
    for (const GraphChannelDescription& channel : from.channels)
      TUTTI_TRY(apply(channel, &channels.emplace_back()));
    set->pattern = static_cast<ChannelPattern>(from.pattern);
    set->channels = std::move(channels);
    return Status::ok();
  }

 private:
  std::string where(int32_t line) const { return fmt::format("{}:{}", fileName_, line); }

  Status apply(const GraphChannelDescription& from, Channel* channel) const {
    std::vector<bool> seen(request_.members.size());
    for (const uint64_t gpu : from.gpus) {
      size_t member = 0;
      while (member < seen.size() && (numberOf(graph_, request_.members[member]) != gpu || seen[member]))
        ++member;
      if (member == seen.size())
        return invalidUsage("{}: <channel>: <gpu dev=\"{}\"> is no rank of this host, or stands there before",
                            where(from.line), gpu);
      seen[member] = true;
      channel->order.push_back(static_cast<int32_t>(member));
    }
    if (const auto missing = std::ranges::find(seen, false); missing != seen.end())
      return invalidUsage("{}: <channel>: <gpu dev=\"{}\"> is missing", where(from.line),
                          numberOf(graph_, request_.members[static_cast<size_t>(missing - seen.begin())]));
    if (!request_.acrossHosts) return Status::ok();  // ports are no use
    if (!from.netIn)
      return invalidUsage("{}: <channel>: no <net>, and the job has other hosts", where(from.line));
    TUTTI_TRY(port(*from.netIn, from.line, &channel->netIn));
    return port(from.netOut.value_or(*from.netIn), from.line, &channel->netOut);
  }

  Status port(uint64_t number, int32_t line, NodeId* node) const {
    for (const NodeId net : graph_.all(NodeType::net))
      if (numberOf(graph_, net) == number && graph_.node(net).host == graph_.node(request_.members[0]).host) {
        *node = net;
        return Status::ok();
      }
    return invalidUsage("{}: <channel>: <net dev=\"{}\"> is no port of this host", where(line), number);
  }

  std::string_view fileName_;
  const Graph& graph_;
  const SearchRequest& request_;
};

}  // namespace

std::vector<GraphDescription> describePlan(const Graph& graph, const SearchRequest& request,
                                           const ChannelPlan& plan) {
  return {describe(graph, request, plan.rings, kGraphRing), describe(graph, request, plan.trees, kGraphTree)};
}

Status applyGraphXml(const std::vector<GraphDescription>& graphs, std::string_view fileName,
                     const Graph& graph, const Paths& paths, const SearchRequest& request,
                     ChannelPlan* plan) {
  for (const GraphDescription& from : graphs) {
    if (from.id != kGraphRing && from.id != kGraphTree) continue;
    ChannelSet* set = from.id == kGraphRing ? &plan->rings : &plan->trees;
    TUTTI_TRY(Applier(fileName, graph, request).apply(from, set));
    measureChannels(graph, paths, request, set);
    set->intra = from.speedIntra;
    set->inter = request.acrossHosts ? from.speedInter : 0;
    set->typeIntra = from.typeIntra;
    set->typeInter = from.typeInter;
  }
  return Status::ok();
}

}  // namespace tutti
