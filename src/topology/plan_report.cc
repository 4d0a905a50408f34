#include "topology/plan_report.h"

#include <algorithm>
#include <vector>

#include "topology/report.h"

namespace tutti {
namespace {

std::string memberLabel(const Graph& graph, const std::vector<NodeId>& members, int32_t member) {
  const NodeId node = members[static_cast<size_t>(member)];
  std::string label = printableText(graph.label(node));
  // Ranks on host devices may share a NUMA node.
  if (graph.node(node).type == NodeType::cpu && std::ranges::count(members, node) > 1)
    label += fmt::format("/{}", member);
  return label;
}

std::string channelText(const Graph& graph, const std::vector<NodeId>& members, const Channel& channel,
                        ChannelPattern pattern) {
  const bool ring = pattern == ChannelPattern::ring;
  const char* arrow = ring ? " > " : " - ";
  std::string text;
  if (channel.netIn != kNoNode) text = printableText(graph.label(channel.netIn)) + arrow;
  for (size_t i = 0; i < channel.order.size(); ++i)
    text += (i > 0 ? arrow : "") + memberLabel(graph, members, channel.order[i]);
  if (!ring) return text;
  if (channel.netOut != kNoNode) return text + arrow + printableText(graph.label(channel.netOut));
  if (channel.order.size() > 1) text += arrow + memberLabel(graph, members, channel.order.front());
  return text;
}

/// "0-3,8": channels that are the same.
std::string numbersText(const std::vector<size_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (last > i) text += fmt::format("-{}", numbers[last]);
    i = last;
  }
  return text;
}

std::string setText(const Graph& graph, const std::vector<NodeId>& members, const ChannelSet& set) {
  const bool ring = set.pattern == ChannelPattern::ring;
  std::string text =
      fmt::format("{}: {} channel{} of {:.4g} GB/s, {:.4g} GB/s in all", ring ? "Rings" : "Trees",
                  set.channels.size(), set.channels.size() == 1 ? "" : "s", set.rate(), set.total());
  std::string how;
  if (members.size() > 1) how = fmt::format("{} between ranks", pathTypeName(set.typeIntra));
  if (set.hasPorts())
    how += fmt::format("{}{} to the network", how.empty() ? "" : ", ", pathTypeName(set.typeInter));
  if (set.crossNic) how += ", rails are crossed";
  if (set.pattern == ChannelPattern::balancedTree) how += ", balanced";
  if (!how.empty()) text += " (" + how + ")";
  text += '\n';
  std::vector<bool> written(set.channels.size());
  for (size_t c = 0; c < set.channels.size(); ++c) {
    if (written[c]) continue;
    std::vector<size_t> alike;
    for (size_t other = c; other < set.channels.size(); ++other)
      if (set.channels[other] == set.channels[c]) {
        written[other] = true;
        alike.push_back(other);
      }
    text += fmt::format("  {:>5}  {}\n", numbersText(alike),
                        channelText(graph, members, set.channels[c], set.pattern));
  }
  if (set.rate() == 0)
    text += "  No path connects all of them: what the ranks do between themselves is not known\n";
  else if (set.bottleneck.to != kNoNode)
    text += "  Limited by " + bottleneckText(graph, set.bottleneck) + "\n";
  return text;
}

}  // namespace

std::string bottleneckText(const Graph& graph, const Bottleneck& bottleneck) {
  std::string text =
      fmt::format("{} to {}: {} of {:g} GB/s for {:g} channel{}", printableText(graph.label(bottleneck.from)),
                  printableText(graph.label(bottleneck.to)), linkTypeName(bottleneck.type),
                  bottleneck.bandwidth, bottleneck.uses, bottleneck.uses == 1 ? "" : "s");
  if (bottleneck.alike > 0)
    text +=
        fmt::format(" ({} other link{} as full)", bottleneck.alike, bottleneck.alike == 1 ? " is" : "s are");
  return text;
}

std::string planText(const Graph& graph, const std::vector<NodeId>& members, const ChannelPlan& plan) {
  std::string text = setText(graph, members, plan.rings) + setText(graph, members, plan.trees);
  if (plan.limitReached) text += "The search ended at its limit: there may be better ones.\n";
  return text;
}

}  // namespace tutti
