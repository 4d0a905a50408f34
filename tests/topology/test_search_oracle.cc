// The search against all that exists: every channel, every set of up to three of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "topology/machines.h"
#include "topology/plan_report.h"
#include "topology/search.h"
#include "topology/topology_files.h"

namespace tutti {
namespace {

using test::describe;
using test::graphOf;
using test::netText;
using test::nicText;

/// What one channel takes: links (by their ends and kind) and how often.
using Uses = std::map<std::pair<NodeId, NodeId>, double>;

struct OneChannel {
  Uses uses;
  PathType intra = PathType::loc, inter = PathType::loc;
  bool crosses = false;
};

class Oracle {
 public:
  Oracle(const Graph& graph, const Paths& paths, bool ports)
      : graph_(graph), paths_(paths), gpus_(graph.all(NodeType::gpu)) {
    if (ports) nets_ = graph.all(NodeType::net);
    std::vector<NodeId> order = gpus_;
    do {
      if (nets_.empty() && order[0] == gpus_[0]) addRing(order, kNoNode, kNoNode);
      for (const NodeId in : nets_)
        for (const NodeId out : nets_) addRing(order, in, out);
    } while (std::ranges::next_permutation(order).found);
  }

  /// The most that sets of up to `most` channels of at most those types move.
  double best(size_t most, PathType intra, PathType inter, bool crosses) {
    allowed_.clear();
    for (const OneChannel& channel : channels_)
      if (channel.intra <= intra && channel.inter <= inter && (crosses || !channel.crosses))
        allowed_.push_back(&channel);
    best_ = 0;
    extend(0, most, 0, {});
    return best_;
  }

 private:
  void use(NodeId from, NodeId to, Uses* uses) const {
    const std::vector<NodeId> route = paths_.route(from, to);
    for (size_t i = 0; i + 1 < route.size(); ++i) (*uses)[{route[i], route[i + 1]}] += 1;
  }

  void addRing(const std::vector<NodeId>& order, NodeId in, NodeId out) {
    OneChannel channel;
    const auto step = [&](NodeId from, NodeId to, PathType* type) {
      *type = std::max(*type, paths_.between(from, to).type);
      use(from, to, &channel.uses);
    };
    for (size_t i = 0; i + 1 < order.size(); ++i) step(order[i], order[i + 1], &channel.intra);
    if (in == kNoNode) {
      if (order.size() > 1) step(order.back(), order.front(), &channel.intra);
    } else {
      step(in, order.front(), &channel.inter);
      step(order.back(), out, &channel.inter);
    }
    channel.crosses = in != out;
    channels_.push_back(channel);
  }

  double capacity(const std::pair<NodeId, NodeId>& link) const {
    double widest = 0;
    for (const HardwareLink& candidate : graph_.node(link.first).links)
      if (candidate.to == link.second) widest = std::max<double>(widest, candidate.bandwidth);
    return widest;
  }

  void extend(size_t first, size_t most, size_t count, const Uses& uses) {
    if (count > 0) {
      double rate = 1e9;
      for (const auto& [link, times] : uses) rate = std::min(rate, capacity(link) / times);
      best_ = std::max(best_, rate * static_cast<double>(count));
    }
    if (count == most) return;
    for (size_t i = first; i < allowed_.size(); ++i) {
      Uses more = uses;
      for (const auto& [link, times] : allowed_[i]->uses) more[link] += times;
      extend(i, most, count + 1, more);
    }
  }

  const Graph& graph_;
  const Paths& paths_;
  std::vector<NodeId> gpus_, nets_;
  std::vector<OneChannel> channels_;
  std::vector<const OneChannel*> allowed_;
  double best_ = 0;
};

void expectOptimal(const std::string& xml, size_t most, bool ports) {
  const Graph graph = graphOf(describe(xml));
  const Paths paths(graph);
  SearchRequest request;
  request.members = defaultMembers(graph);
  request.acrossHosts = ports;
  request.maxChannels = static_cast<int32_t>(most);
  const auto plan = searchChannels(graph, paths, request);
  ASSERT_TRUE(plan.isOk()) << plan.status().message();
  const ChannelSet& rings = plan->rings;
  Oracle oracle(graph, paths, ports);
  const std::string text = xml + planText(graph, request.members, *plan);
  EXPECT_FALSE(plan->limitReached) << text;
  const double same = oracle.best(most, rings.typeIntra, rings.typeInter, rings.crossNic);
  EXPECT_NEAR(rings.total() / same, 1, 0.001) << "best " << same << "\n" << text;
  // Farther ways had to bring a quarter more, and do not.
  const double farther = oracle.best(most, PathType::dis, rings.typeInter, rings.crossNic);
  EXPECT_LE(farther, rings.total() * 1.2501) << text;
  if (!ports) return;
  const double crossing = oracle.best(most, rings.typeIntra, rings.typeInter, true);
  EXPECT_LE(crossing, rings.total() * 1.0101) << text;
}

/// A mesh at random: NVLinks between some pairs, on one or two sockets.
std::string randomMachine(std::mt19937& random, int gpus, bool ports) {
  std::vector<test::Nvlinks> links;
  for (int a = 0; a < gpus; ++a)
    for (int b = a + 1; b < gpus; ++b)
      if (const int count = static_cast<int>(random() % 4); count > 0) links.push_back({a, b, count});
  const std::string nic0 = ports ? nicText(0, netText(0, 100)) : "";
  const std::string nic1 = ports ? nicText(1, netText(1, 200)) : "";
  return test::nvlinkMachine(gpus, 80, links, 1 + static_cast<int>(random() % 2), nic0, nic1);
}

TEST(SearchOracle, NoSetOfRingsIsBetter) {
  std::mt19937 random(20240817);
  for (int round = 0; round < 40; ++round)
    expectOptimal(randomMachine(random, 2 + round % 3, false), 3, false);
  for (int round = 0; round < 12; ++round) expectOptimal(randomMachine(random, 5, false), 3, false);
  for (int round = 0; round < 3; ++round) expectOptimal(randomMachine(random, 6, false), 2, false);
}

TEST(SearchOracle, NoSetOfRingsWithPortsIsBetter) {
  std::mt19937 random(4711);
  for (int round = 0; round < 20; ++round) expectOptimal(randomMachine(random, 2 + round % 2, true), 3, true);
  for (int round = 0; round < 4; ++round) expectOptimal(randomMachine(random, 4, true), 2, true);
}

}  // namespace
}  // namespace tutti
