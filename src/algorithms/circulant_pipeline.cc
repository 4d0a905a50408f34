#include <algorithm>
#include <utility>

#include "algorithms/circulant.h"
#include "algorithms/locations.h"

namespace tutti {
namespace {

constexpr int32_t kDefaultBlocks = 8;

/// A rank other than 0 is a sum of different distances, taken greedily from the longest; the block that the
/// root sends over the shortest of them is the first that reaches the rank. `rounds` for the root itself.
int32_t baseBlock(const std::vector<int32_t>& distances, int32_t rank) {
  const auto rounds = static_cast<int32_t>(distances.size()) - 1;
  if (rank == 0) return rounds;
  for (int32_t k = rounds - 1; k >= 0; --k) {
    const int32_t distance = distances[static_cast<size_t>(k)];
    if (distance > rank) continue;
    rank -= distance;
    if (rank == 0) return k;
  }
  return rounds;  // not reached: the last distance is 1
}

/// What a rank does in one round; -1: nothing.
struct Round {
  int32_t to = -1;
  int32_t sent = -1;
  int32_t from = -1;
  int32_t received = -1;
};

/// The rounds of a Broadcast of `blocks` blocks as the rank `place` places after the root sees them.
//
// Block numbers run in phases of q rounds. Rounds are counted so that the last phase is whole: the first
// `skipped` of them do not take place, numbers below 0 are nothing yet, numbers beyond the last block are the
// last.
std::vector<Round> broadcastRounds(int32_t ranks, int32_t place, int32_t blocks) {
  const std::vector<int32_t> distances = circulantDistances(ranks);
  const auto q = static_cast<int32_t>(distances.size()) - 1;
  const int32_t total = blocks - 1 + q;
  const int32_t skipped = (q - total % q) % q;
  const std::vector<int32_t> receives = circulantReceives(distances, place);
  std::vector<int32_t> sends(static_cast<size_t>(q));
  for (int32_t k = 0; k < q; ++k) {
    const auto index = static_cast<size_t>(k);
    sends[index] = circulantReceives(distances, wrap(place + distances[index], ranks))[index];
  }
  const auto block = [&](int32_t number, int32_t round) {
    return std::min(number + round / q * q - skipped, blocks - 1);
  };
  std::vector<Round> rounds;
  for (int32_t i = skipped; i < skipped + total; ++i) {
    const auto k = static_cast<size_t>(i % q);
    Round round;
    const int32_t to = wrap(place + distances[k], ranks);
    if (to != 0 && block(sends[k], i) >= 0) {
      round.to = to;
      round.sent = block(sends[k], i);
    }
    if (place != 0 && block(receives[k], i) >= 0) {
      round.from = wrap(place - distances[k], ranks);
      round.received = block(receives[k], i);
    }
    rounds.push_back(round);
  }
  return rounds;
}

/// Sums are kept in scratch; at the root in the output, whose user wants them.
class Reducer {
 public:
  Reducer(Lane& lane, bool root, const std::vector<Round>& rounds, int32_t blocks)
      : lane_(lane), root_(root), added_(static_cast<size_t>(blocks)), expected_(added_.size()) {
    for (const Round& round : rounds)
      if (round.sent >= 0) ++expected_[static_cast<size_t>(round.sent)];
  }

  void send(int32_t to, int32_t block) {
    const bool touched = added_[static_cast<size_t>(block)] > 0;
    Step& step = lane_.send(to, touched ? at::scratch(block) : at::input(block));
    if (touched) step.sizeAs = block;
  }
  void add(int32_t from, int32_t block) {
    int32_t& added = added_[static_cast<size_t>(block)];
    const Location sum = root_ ? at::output(block) : at::scratch(block);
    Step& step = lane_.recvReduce(from, added == 0 ? at::input(block) : sum, sum);
    step.sizeAs = block;
    ++added;
    step.finalize = root_ && added == expected_[static_cast<size_t>(block)];
  }

 private:
  Lane& lane_;
  bool root_;
  std::vector<int32_t> added_;     // contributions of others so far, by block
  std::vector<int32_t> expected_;  // in all
};

}  // namespace

// Going from the nearest ranks to the farthest, a rank takes in round k the highest block that any rank
// between d[k] and d[k+1] places before it was first to get, and that it does not get in another round. The
// root has everything: what comes from it is the rank's own first block. That this agrees with what senders
// have is proved for each number of ranks by the checker.
std::vector<int32_t> circulantReceives(const std::vector<int32_t>& distances, int32_t rank) {
  const auto q = static_cast<int32_t>(distances.size()) - 1;
  const int32_t ranks = distances.back();
  const int32_t own = baseBlock(distances, rank);
  std::vector<bool> taken(static_cast<size_t>(q) + 1);
  taken[static_cast<size_t>(own)] = true;
  std::vector<int32_t> result;
  for (int32_t k = 0; k < q; ++k) {
    int32_t best = -1;
    const auto consider = [&](int32_t before) {
      const int32_t block = baseBlock(distances, wrap(rank - before, ranks));
      if (!taken[static_cast<size_t>(block)]) best = std::max(best, block);
    };
    const int32_t near = distances[static_cast<size_t>(k)];
    const int32_t far = distances[static_cast<size_t>(k) + 1];
    for (int32_t before = near; before < far; ++before) consider(before);
    if (best < 0) consider(far);
    if (best >= 0) taken[static_cast<size_t>(best)] = true;
    result.push_back(best == q ? own : best - q);
  }
  return result;
}

Schedule circulantPipeline(const ScheduleRequest& request) {
  const Layout& layout = request.layout;
  const int32_t blocks = request.blocks > 0 ? request.blocks : kDefaultBlocks;
  const int32_t root = layout.positionOf(request.root);
  const int32_t place = wrap(layout.positionOf(request.rank) - root, request.ranks);
  const auto rankAt = [&](int32_t from) { return layout.rankAt(wrap(from + root, request.ranks)); };
  Schedule schedule = makeSchedule(request, "circulant", blocks);
  Lane& lane = schedule.lanes.emplace_back();
  const std::vector<Round> rounds = broadcastRounds(request.ranks, place, blocks);
  if (request.collective == Collective::broadcast) {
    for (const Round& round : rounds) {
      if (round.sent >= 0)
        lane.send(rankAt(round.to), place == 0 ? at::input(round.sent) : at::output(round.sent));
      if (round.received >= 0) lane.recv(rankAt(round.from), at::output(round.received));
    }
    if (place == 0) lane.copy(at::input(0, blocks), at::output(0, blocks));
    return tidy(std::move(schedule));
  }
  schedule.scratchSegments = blocks;
  Reducer reducer(lane, place == 0, rounds, blocks);
  for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
    if (round->received >= 0) reducer.send(rankAt(round->from), round->received);
    if (round->sent >= 0) reducer.add(rankAt(round->to), round->sent);
  }
  return tidy(std::move(schedule));
}

}  // namespace tutti
