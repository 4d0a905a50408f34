// Max-min fair shares of links: what each of many flows gets when they share links.
//
//   flow a  ---[link 1: 10]---[link 2: 4]---        a and b share link 2: 2 each
//   flow b  ------------------[link 2: 4]---
//   flow c  ---[link 1: 10]----------------         c takes what a leaves of link 1: 8
//
// No flow can get more without taking from one that has no more than it (Bertsekas and Gallager, Data
// Networks, 6.5.2). Congestion control and fair switches come close to that when flows are long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tutti::sim {

/// A link on a flow's way. A flow of rate x takes weight * x of the link (striped over two ports: 0.5 each; a
/// copy through memory, which loads and stores: 2).
struct Hop {
  uint32_t link = 0;
  float weight = 1;
  friend constexpr bool operator==(const Hop&, const Hop&) = default;
};

struct Flow {
  std::span<const Hop> hops;  // none: nothing limits it
  double bytes = 0;
  double limit = std::numeric_limits<double>::infinity();  // bytes/s, whatever the links give
};

/// Keeps its working memory between calls. Not for several threads at once.
class FairShares {
 public:
  /// Bytes/s of each link; infinity and 0 are allowed.
  explicit FairShares(std::vector<double> capacity);

  /// Bytes/s of each flow, by progressive filling: all grow alike until a link is full, which stops those on
  /// it. Infinite for a flow that nothing limits. O(flows x hops x log links).
  void rates(std::span<const Flow> flows, std::vector<double>* rates);

  /// Seconds that each flow takes when all begin at once; what those that end leave is shared anew. After
  /// kMaxShares sharings the rest keep their rates (they may then be said to take longer than they do).
  void finishTimes(std::span<const Flow> flows, std::vector<double>* seconds);
  static constexpr int kMaxShares = 32;

  const std::vector<double>& capacity() const { return capacity_; }

 private:
  struct LinkState {
    double left = 0;                // capacity that is not given away
    double weight = 0;              // of the flows that still grow
    uint32_t first = 0, count = 0;  // its flows in members_
  };
  double shareOf(const LinkState& link) const { return link.weight > 0 ? link.left / link.weight : 0; }

  std::vector<double> capacity_;
  std::vector<int32_t> slot_;  // of a link in states_; -1: no flow uses it
  std::vector<LinkState> states_;
  std::vector<uint32_t> used_;     // links with a slot
  std::vector<uint32_t> members_;  // flows, link by link
};

}  // namespace tutti::sim
