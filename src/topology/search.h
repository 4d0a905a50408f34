// Which rings and trees a host's ranks form: per channel an order of the ranks and the network ports at its
// ends, so that all channels together move as much as the links allow.
//
//      net ──► r0 ──► r1 ──► r2 ──► r3 ──► net        a ring of one host among several
//      ┌─────► r0 ──► r1 ──► r2 ──► r3 ─────┐         a ring of a host alone
//      net ◄─► r0 ◄─► r1 ◄─► r2 ◄─► r3                a tree's part: a chain, the network at its head
//
// Model. Every channel of a set runs at the same rate s. A ring takes s of each link on the way from a rank
// to the next. A tree channel of rate s reduces at s/2 and broadcasts at s/2 at the same time, so it takes
// s/2 of both directions of each link between ranks; its port carries a parent's and, on average over the two
// trees of a pair, one child's traffic: s in each direction. So s means the same for both: bus bandwidth.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "topology/connection_choice.h"
#include "topology/graph.h"
#include "topology/paths.h"

namespace tutti {

/// NCCL's numbers, as its graph XML has them.
enum class ChannelPattern : uint8_t {
  balancedTree = 1,  // the port is near the first two ranks: one serves the parent, one the children
  splitTree = 2,     // read from files only
  tree = 3,          // the first rank serves parent and children
  ring = 4,
};
const char* channelPatternName(ChannelPattern pattern);

/// Whether a channel may leave a host by another port than the one it came in by (NCCL_CROSS_NIC).
enum class CrossNic : uint8_t {
  never = 0,    // for networks with one switch per rail
  always = 1,   // it costs nothing
  ifFaster = 2  // only where more bandwidth follows
};

struct SearchRequest {
  /// Where each rank of the host computes: a GPU's node, or a NUMA node for ranks on host devices (which may
  /// share one). All of one host. The results name ranks by their index here.
  std::vector<NodeId> members;
  /// The job has other hosts: channels get ports, if the host has any.
  bool acrossHosts = false;
  CrossNic crossNic = CrossNic::ifFaster;
  /// A GPU and a port that are farther apart than this meet in host memory (NCCL_NET_GDR_LEVEL).
  PathType gdrLevel = kDefaultGdrLevel;
  int32_t minChannels = 1;   // NCCL_MIN_NCHANNELS
  int32_t maxChannels = 32;  // NCCL_MAX_NCHANNELS
  /// GB/s that one channel (a thread block, a lane) can move. Of solutions with equal bandwidth in all, the
  /// one with the fastest channels below this is taken.
  float channelBandwidth = 24;
  /// Steps that the search may take, some 50 ns each; 0: defaultWorkLimit. Not seconds: all ranks must stop
  /// at the same point.
  uint64_t workLimit = 0;
};

struct Channel {
  std::vector<int32_t> order;  // indexes of members; each exactly once
  NodeId netIn = kNoNode;      // port before order.front(); of trees the only one
  NodeId netOut = kNoNode;     // port behind order.back()
  bool operator==(const Channel&) const = default;
};

/// The link that a set's rate is bounded by: it is used to its capacity.
struct Bottleneck {
  NodeId from = kNoNode;
  NodeId to = kNoNode;  // kNoNode: no link limits (one rank alone, ranks on one NUMA node)
  LinkType type = LinkType::pci;
  float bandwidth = 0;  // GB/s
  float uses = 0;       // by so many channels; trees count halves
  int32_t alike = 0;    // other links that are just as full
};

struct ChannelSet {
  ChannelPattern pattern = ChannelPattern::ring;
  std::vector<Channel> channels;
  float intra = 0;                     // GB/s of each channel between ranks
  float inter = 0;                     // GB/s of each channel through its ports; 0 without ports
  PathType typeIntra = PathType::loc;  // the farthest step
  PathType typeInter = PathType::loc;
  bool crossNic = false;      // some channel's ports differ
  bool sameChannels = false;  // all channels have one order
  Bottleneck bottleneck;

  /// GB/s of each channel, ports included.
  float rate() const { return hasPorts() && inter < intra ? inter : intra; }
  /// Channels go to other hosts. (A port may be so slow that `inter` is 0.)
  bool hasPorts() const { return !channels.empty() && channels.front().netIn != kNoNode; }
  /// GB/s of all channels: what one rank sends in one direction.
  float total() const { return rate() * static_cast<float>(channels.size()); }
};

struct ChannelPlan {
  ChannelSet rings;
  ChannelSet trees;
  uint64_t work = 0;          // steps taken
  bool limitReached = false;  // of workLimit: there may be better solutions
};

/// Finds them. Depends on nothing but its arguments, so ranks with equal input get equal results. Never fails
/// on a graph that connects all members; where it does not, ranks are chained in their order, at rate 0
/// (the transport has to find a way). Errors: no members, too many (kMaxMembers), members that are neither
/// GPU nor CPU or on several hosts.
///
/// Method (docs/topology.md): candidate rates are capacities divided by whole numbers; a maximum flow bounds
/// how many channels of a rate can exist; a depth-first search finds them, the closest neighbour first.
Result<ChannelPlan> searchChannels(const Graph& graph, const Paths& paths, const SearchRequest& request);

/// All GPUs of a host, in order of their numbers; its NUMA nodes where it has none.
std::vector<NodeId> defaultMembers(const Graph& graph, int32_t host = 0);

/// Enough for the best known answers of all machines in tests/topology: 330000 for 8 ranks, 3 million for 72.
uint64_t defaultWorkLimit(size_t members);

constexpr size_t kMaxMembers = 1024;
constexpr int32_t kMaxChannels = 64;

/// What a set needs of each link, and what follows: intra, inter, types, crossNic, sameChannels, bottleneck
/// are computed for its pattern and channels.
void measureChannels(const Graph& graph, const Paths& paths, const SearchRequest& request, ChannelSet* set);

/// What the channels of a set put on one direction of a link when all run at the set's rate.
struct LinkLoad {
  NodeId from = kNoNode;
  NodeId to = kNoNode;
  LinkType type = LinkType::pci;
  float bandwidth = 0;  // GB/s, of the link
  float load = 0;       // GB/s
};
/// Of every link that the set uses.
std::vector<LinkLoad> linkLoads(const Graph& graph, const Paths& paths, const SearchRequest& request,
                                const ChannelSet& set);

}  // namespace tutti
