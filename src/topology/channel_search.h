// Finds channels of a given rate: a depth-first search over orders of the members that takes links' capacity
// as it goes and gives it back when it turns round.
#pragma once

#include <cstdint>
#include <vector>

#include "topology/search_space.h"

namespace tutti {

class ChannelSearch {
 public:
  struct Task {
    bool ring = true;  // else chains
    bool crossNic = false;
    PathType levelIntra = PathType::loc;  // no step goes farther
    PathType levelInter = PathType::loc;
    Rate rate = 0;
    size_t wanted = 1;   // channels
    uint64_t limit = 0;  // steps
  };

  explicit ChannelSearch(SearchSpace* space);

  /// At most `wanted` channels, as many as are found. `greedy`: each channel is taken as first found;
  /// otherwise all combinations are gone through, until they are or the limit is reached.
  std::vector<Channel> find(const Task& task, bool greedy);
  /// Steps of the last find().
  uint64_t work() const { return work_; }
  bool limitReached() const { return work_ >= task_.limit; }

 private:
  // A channel is a sequence of choices, each an index into a fixed list: port, member at the port, next
  // member,
  // ..., port. Channels of a set may stand in any order, so each begins at the choices of the one before: no
  // set is seen twice.
  bool nextChannel();
  bool chooseChannel();
  bool choosePort();
  bool chooseFirst(size_t port);
  bool chooseNext();
  bool closeRing();
  bool finishChannel();
  size_t firstChoice() const;

  bool markEnders(size_t port, size_t first);

  bool take(const std::vector<LinkId>& links, int64_t halves);
  void giveBack(const std::vector<LinkId>& links, int64_t halves);
  /// Takes one step between members and calls `then`; gives back when that fails.
  template <typename Then>
  bool step(size_t from, size_t to, const Then& then);
  template <typename Then>
  bool choice(size_t index, const Then& then);

  SearchSpace* space_;
  Task task_;
  bool greedy_ = true;
  uint64_t work_ = 0;
  std::vector<Rate> left_;
  std::vector<bool> visited_;
  std::vector<bool> isEnder_;      // members that the channel may end with
  size_t enders_ = 0;              // of them, not visited
  Channel channel_;                // being made
  std::vector<uint16_t> choices_;  // of it
  std::vector<uint16_t> lower_;    // of the one before
  bool tight_ = false;             // so far equal to it
  std::vector<Channel> found_, best_;
};

}  // namespace tutti
