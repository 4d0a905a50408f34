#include "core/stall_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace tutti {
namespace {

constexpr size_t kMostNamed = 6;       // ranks in one list of a report
constexpr size_t kMostWhole = 64;      // ranks of a communicator that is reported whole
constexpr size_t kMostDifferent = 16;  // of a larger one: ranks that are not like the rest

using State = RankPosition::State;
using Kind = CallName::Kind;

const RankPosition* find(const std::vector<RankPosition>& positions, int rank) {
  const auto found =
      std::find_if(positions.begin(), positions.end(), [rank](const auto& one) { return one.rank == rank; });
  return found == positions.end() ? nullptr : &*found;
}

bool inCollective(const RankPosition& position) {
  return position.state == State::running && position.call.kind == Kind::collective;
}

/// The ranks that `start` waits for, directly or through others, nearest first; without itself.
std::vector<int> awaited(const std::vector<RankPosition>& positions, int start) {
  std::vector<int> order{start};
  std::set<int> seen{start};
  for (size_t i = 0; i < order.size(); ++i) {
    const RankPosition* one = find(positions, order[i]);
    if (one == nullptr || one->state != State::running) continue;
    for (const WaitFor& wait : one->waits)
      if (wait.peer >= 0 && seen.insert(wait.peer).second) order.push_back(wait.peer);
  }
  order.erase(order.begin());
  return order;
}

/// "ranks 1, 4 and 6", "ranks 1, 2, ... (12 in all)".
std::string list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t shown = std::min(ranks.size(), kMostNamed);
  for (size_t i = 0; i < shown; ++i)
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  if (shown < ranks.size()) text += fmt::format(", ... ({} in all)", ranks.size());
  return text;
}

/// Ranks whose call of the same number is another one.
std::vector<const RankPosition*> others(const std::vector<RankPosition>& positions,
                                        const RankPosition& mine) {
  std::vector<const RankPosition*> found;
  if (!inCollective(mine)) return found;
  for (const RankPosition& one : positions)
    if (inCollective(one) && one.collective == mine.collective && !(one.call == mine.call))
      found.push_back(&one);
  return found;
}

std::string mismatchText(const RankPosition& mine, const RankPosition& other) {
  return fmt::format("the ranks' calls do not match: as collective {} {} called {}, but {} called {}",
                     mine.collective, mine.who(), mine.call.text(), other.who(), other.call.text());
}

}  // namespace

std::string stallReport(const std::vector<RankPosition>& positions, int rank) {
  const RankPosition* mine = find(positions, rank);
  if (mine == nullptr) return fmt::format("rank {} has not moved", rank);
  std::string text = fmt::format("rank {}: {}", rank, mine->call.text());
  if (mine->call.kind == Kind::collective) text += fmt::format(", collective {}", mine->collective);
  if (mine->messages > 1) text += fmt::format(" and {} more message(s) of its group", mine->messages - 1);
  text += fmt::format(" on communicator '{}' ({} ranks), has not moved for {}", mine->communicator,
                      mine->ranks, durationText(mine->quietMs));
  // Hosts and processes of those are named below, with where they stand.
  for (size_t i = 0; i < mine->waits.size() && i < 3; ++i)
    text += (i == 0 ? ": waits for " : " and for ") + describeWait(mine->waits[i]);
  const auto different = others(positions, *mine);
  if (!different.empty()) text += "; " + mismatchText(*mine, *different.front());
  size_t named = 0;
  for (const int peer : awaited(positions, rank)) {
    const RankPosition* one = find(positions, peer);
    if (one == nullptr || named++ == kMostNamed) continue;
    text += fmt::format("; {} {}", one->who(), one->standing());
  }
  if (mine->call.kind != Kind::collective) return text;
  std::vector<int> late;
  for (const RankPosition& one : positions)
    if (one.state != State::silent && one.collectivesCalled < mine->collective) late.push_back(one.rank);
  if (!late.empty())
    text += fmt::format("; {} {} not called collective {}", list(late), late.size() == 1 ? "has" : "have",
                        mine->collective);
  return text;
}

std::optional<Contradiction> contradiction(const std::vector<RankPosition>& positions, int rank,
                                           std::chrono::milliseconds quiet) {
  const RankPosition* mine = find(positions, rank);
  if (mine == nullptr || mine->state != State::running) return std::nullopt;
  const auto stuck = [quiet](const RankPosition& one) {
    return one.state == State::running && one.quietMs >= static_cast<uint64_t>(quiet.count());
  };
  if (!stuck(*mine)) return std::nullopt;
  for (const RankPosition* other : others(positions, *mine))
    if (stuck(*other)) return Contradiction{mismatchText(*mine, *other), false};
  for (const int peer : awaited(positions, rank)) {
    const RankPosition* one = find(positions, peer);
    if (one == nullptr) continue;
    if (one->state == State::left)
      return Contradiction{fmt::format("rank {} waits in {} for {}, which has left the communicator", rank,
                                       mine->call.text(), one->who()),
                           true};
    if (!stuck(*one)) continue;
    // Operations of a communicator run in the order of their calls: a rank that is stuck in a message to or
    // from another, which is itself stuck in a collective that the first has not even called, will never get
    // there.
    const auto leadsBack = awaited(positions, peer);
    const bool circle = std::find(leadsBack.begin(), leadsBack.end(), rank) != leadsBack.end();
    const bool messageHere = mine->call.kind != Kind::collective;
    const bool messageThere = one->call.kind != Kind::collective;
    if (!circle || messageHere == messageThere) continue;
    const RankPosition& collective = messageHere ? *one : *mine;
    const RankPosition& message = messageHere ? *mine : *one;
    if (message.collectivesCalled < collective.collective)
      return Contradiction{
          fmt::format("the ranks' calls do not match: {} called {} (its collective {}), but {} called {}",
                      collective.who(), collective.call.text(), collective.collective, message.who(),
                      message.call.text()),
          false};
  }
  return std::nullopt;
}

std::vector<RankPosition> condense(std::vector<RankPosition> positions, int asking) {
  if (positions.size() <= kMostWhole) return positions;
  const auto key = [](const RankPosition& one) {
    return std::make_pair(static_cast<int>(one.state), one.collective);
  };
  std::map<std::pair<int, uint64_t>, size_t> counts;
  for (const RankPosition& one : positions) ++counts[key(one)];
  const auto usual = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
                       return a.second < b.second;
                     })->first;
  std::set<int> keep{asking};
  for (const int rank : awaited(positions, asking))
    if (keep.size() < kMostWhole) keep.insert(rank);
  size_t different = 0;
  for (const RankPosition& one : positions)
    if (key(one) != usual && different++ < kMostDifferent) keep.insert(one.rank);
  std::erase_if(positions, [&](const RankPosition& one) { return keep.count(one.rank) == 0; });
  return positions;
}

}  // namespace tutti
