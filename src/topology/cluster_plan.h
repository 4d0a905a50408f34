// Rings and trees of a whole job, from what its hosts have told: the same on every rank.
//
//   channel c        host 0              host 1              host 2
//   ring:   ┌─► 0 > 1 > 2 > 3 ──rail──► 4 > 5 > 6 > 7 ──rail──► 8 > 9 > 10 > 11 ─┐
//           └────────────────────────────────────────────────────────────────────┘
//   tree:   hosts are nodes of one of two binary trees (double_tree.h), the even channels' and the odd ones';
//   a
//           host's ranks are a chain that hangs at its first rank.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "topology/host_plan.h"

namespace tutti {

/// Whom a rank talks to in one channel; -1: nobody. Rails are this rank's host's ports, kNoRail inside a
/// host.
struct ChannelNeighbours {
  int32_t ringPrevious = -1;
  int32_t ringNext = -1;
  uint8_t railIn = kNoRail;   // the port that the previous rank's data comes in by
  uint8_t railOut = kNoRail;  // the port that the next rank's goes out by
  int32_t treeParent = -1;
  std::array<int32_t, 3> treeChildren = {-1, -1, -1};
  uint8_t railTree = kNoRail;  // the port of the tree
  bool operator==(const ChannelNeighbours&) const = default;
};

/// Immutable. Holds 6 bytes a rank, and each distinct host's plan once.
class ClusterPlan {
 public:
  /// `summaries`: encodeHostPlan of each host, in any order. Hosts are put in order of their lowest rank.
  ///
  /// Number of channels: the smallest that loses next to nothing (a twentieth). A host that has more of its
  /// own uses the first ones (the search puts channels of different ports first); a host that has fewer uses
  /// each several times, at a part of its rate. Where all hosts are alike, that is their number of channels.
  /// Errors: bytes that are no plan; ranks that no host has, or two.
  static Result<ClusterPlan> connect(const std::vector<std::string>& summaries,
                                     int32_t maxChannels = kMaxChannels);

  int32_t ranks() const { return static_cast<int32_t>(hostOf_.size()); }
  int32_t hosts() const { return static_cast<int32_t>(hosts_.size()); }
  int32_t channels() const { return channels_; }
  /// GB/s of each channel: the slowest host's.
  float ringRate() const { return ringRate_; }
  float treeRate() const { return treeRate_; }
  /// GB/s that the slowest host can send to the next by all rings; 0: some host has no ports.
  float linkRate() const;
  /// Steps between hosts, of all rings, that go out by one rail and come in by another.
  int32_t railCrossings() const;

  ChannelNeighbours neighbours(int32_t channel, int32_t rank) const;
  /// All ranks, as ring `channel` passes them.
  std::vector<int32_t> ring(int32_t channel) const;
  /// Bytes held.
  size_t bytes() const;

 private:
  struct Host {
    int32_t first = 0;  // of ranks_
    int32_t plan = 0;   // of plans_
  };
  struct View {  // of a channel of a host: an order, forwards or backwards
    const RailChannel* channel;
    bool reversed;
    size_t size() const { return channel->order.size(); }
    uint16_t at(size_t i) const { return channel->order[reversed ? size() - 1 - i : i]; }
    uint8_t railIn() const { return reversed ? channel->railOut : channel->railIn; }
    uint8_t railOut() const { return reversed ? channel->railIn : channel->railOut; }
  };

  void chooseChannels(int32_t maxChannels);
  const HostPlan& planOf(int32_t host) const {
    return plans_[static_cast<size_t>(hosts_[static_cast<size_t>(host)].plan)];
  }
  View ringOf(int32_t host, int32_t channel) const;
  const RailChannel& treeOf(int32_t host, int32_t channel) const;
  int32_t rankOf(int32_t host, uint16_t member) const;
  int32_t headOf(int32_t host, int32_t channel) const;
  int32_t childrensRank(int32_t host, int32_t channel) const;
  void addTree(int32_t channel, int32_t host, uint16_t member, ChannelNeighbours* found) const;

  std::vector<HostPlan> plans_;  // distinct ones; without ranks
  std::vector<Host> hosts_;
  std::vector<int32_t> ranks_;    // host by host
  std::vector<uint16_t> hostOf_;  // by rank
  int32_t channels_ = 1;
  float ringRate_ = 0, treeRate_ = 0;
};

}  // namespace tutti
