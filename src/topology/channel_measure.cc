// What a set of channels needs of each link, and the rate that follows.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "topology/search.h"
#include "topology/search_space.h"

namespace tutti {
namespace {

class Measure {
 public:
  Measure(const Graph& graph, const Paths& paths, const SearchRequest& request, const ChannelSet& set)
      : space_(graph, paths, request),
        set_(set),
        halves_(space_.links().size()),
        intra_(space_.links().size()),
        inter_(space_.links().size()) {}

  ChannelSet run() {
    set_.typeIntra = set_.typeInter = PathType::loc;
    set_.crossNic = false;
    set_.sameChannels = true;
    for (const Channel& channel : set_.channels) {
      add(channel);
      set_.crossNic |= channel.netIn != channel.netOut;
      set_.sameChannels &= channel.order == set_.channels.front().order;
    }
    set_.intra = slowest(intra_);
    set_.inter = set_.hasPorts() ? slowest(inter_) : 0;
    if (set_.typeIntra == PathType::dis) set_.intra = 0;
    findBottleneck();
    return std::move(set_);
  }

  std::vector<LinkLoad> loads() {
    for (const Channel& channel : set_.channels) add(channel);
    std::vector<LinkLoad> all;
    for (LinkId link = 0; link < halves_.size(); ++link) {
      if (halves_[link] == 0) continue;
      const SearchSpace::LinkInfo& info = space_.links()[link];
      all.push_back({info.from, info.to, info.type, info.bandwidth,
                     set_.rate() * static_cast<float>(halves_[link]) / static_cast<float>(kHalves)});
    }
    return all;
  }

 private:
  void use(const std::vector<LinkId>& links, int64_t halves, std::vector<bool>* kind) {
    for (const LinkId link : links) {
      halves_[link] += halves;
      (*kind)[link] = true;
    }
  }
  void step(size_t from, size_t to, int64_t halves) {
    set_.typeIntra = std::max(set_.typeIntra, space_.memberType(from, to));
    use(space_.route(from, to), halves, &intra_);
  }
  void port(NodeId node, size_t member, int64_t inHalves, int64_t outHalves) {
    const size_t net = space_.netIndex(node);
    if (net == space_.nets()) return;
    set_.typeInter = std::max(set_.typeInter, space_.netType(member, net));
    if (inHalves > 0) use(space_.fromNet(net, member), inHalves, &inter_);
    if (outHalves > 0) use(space_.toNet(member, net), outHalves, &inter_);
  }

  void add(const Channel& channel) {
    const auto at = [&](size_t i) { return static_cast<size_t>(channel.order[i]); };
    const size_t count = channel.order.size();
    const bool ring = set_.pattern == ChannelPattern::ring;
    for (size_t i = 0; i + 1 < count; ++i) {
      step(at(i), at(i + 1), ring ? kHalves : 1);
      if (!ring) step(at(i + 1), at(i), 1);
    }
    if (ring) {
      if (channel.netIn == kNoNode && count > 1) step(at(count - 1), at(0), kHalves);
      port(channel.netIn, at(0), kHalves, 0);
      port(channel.netOut, at(count - 1), 0, kHalves);
    } else if (set_.pattern == ChannelPattern::tree || count == 1) {
      port(channel.netIn, at(0), kHalves, kHalves);
    } else {
      port(channel.netIn, at(0), 1, 1);
      port(channel.netIn, at(1), 1, 1);
    }
  }

  double rateOf(LinkId link) const {
    return static_cast<double>(space_.links()[link].capacity) / static_cast<double>(halves_[link]) /
           kRatePerGigabyte;
  }
  /// Of the links of a kind that are used at all.
  float slowest(const std::vector<bool>& kind) const {
    double rate = kLocalBandwidth / std::max<double>(1, static_cast<double>(set_.channels.size()));
    for (LinkId link = 0; link < halves_.size(); ++link)
      if (kind[link]) rate = std::min(rate, rateOf(link));
    return static_cast<float>(rate);
  }

  void findBottleneck() {
    set_.bottleneck = {};
    double lowest = std::numeric_limits<double>::infinity();
    for (LinkId link = 0; link < halves_.size(); ++link) {
      if (halves_[link] == 0 || space_.links()[link].bandwidth >= kLocalBandwidth) continue;
      const double rate = rateOf(link);
      if (rate > lowest * 0.9995) {
        set_.bottleneck.alike += rate < lowest * 1.0005;
        continue;
      }
      lowest = rate;
      const SearchSpace::LinkInfo& info = space_.links()[link];
      set_.bottleneck = {info.from, info.to, info.type, info.bandwidth,
                         static_cast<float>(halves_[link]) / static_cast<float>(kHalves)};
    }
  }

  SearchSpace space_;
  ChannelSet set_;
  std::vector<int64_t> halves_;
  std::vector<bool> intra_, inter_;
};

}  // namespace

void measureChannels(const Graph& graph, const Paths& paths, const SearchRequest& request, ChannelSet* set) {
  *set = Measure(graph, paths, request, *set).run();
}

std::vector<LinkLoad> linkLoads(const Graph& graph, const Paths& paths, const SearchRequest& request,
                                const ChannelSet& set) {
  return Measure(graph, paths, request, set).loads();
}

}  // namespace tutti
