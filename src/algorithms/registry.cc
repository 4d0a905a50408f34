#include "algorithms/registry.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <set>
#include <string>
#include <utility>

#include "algorithms/binomial.h"
#include "algorithms/bruck.h"
#include "algorithms/circulant.h"
#include "algorithms/direct.h"
#include "algorithms/double_tree.h"
#include "algorithms/hierarchical.h"
#include "algorithms/pairwise.h"
#include "algorithms/pat.h"
#include "algorithms/rabenseifner.h"
#include "algorithms/recursive_doubling.h"
#include "algorithms/ring.h"
#include "algorithms/scatter_allgather.h"
#include "algorithms/spread.h"
#include "algorithms/two_level.h"

namespace tutti {
namespace {

/// hierarchical/INTRA/INTER, for all that twoLevel() can be made of.
void addPairs(std::vector<Algorithm>* all) {
  using enum Collective;
  // Never destroyed, like the table that has views of them.
  static auto& names = *new std::deque<std::string>();
  std::set<std::string_view> between;
  for (const Collective collective : {allReduce, broadcast, reduce})
    for (const std::string_view name : interAlgorithms(collective)) between.insert(name);
  for (const std::string_view intra : intraAlgorithms())
    for (const std::string_view inter : between) {
      Algorithm pair;
      pair.name = names.emplace_back(fmt::format("hierarchical/{}/{}", intra, inter));
      pair.summary = names.emplace_back(fmt::format("{} inside hosts, {} between them", intra, inter));
      pair.medium = Medium::hosts;
      for (const Collective collective : {allReduce, broadcast, reduce})
        if (const auto known = interAlgorithms(collective); std::ranges::find(known, inter) != known.end())
          pair.collectives.push_back(collective);
      pair.generator = twoLevel;
      pair.intra = intra;
      pair.inter = inter;
      all->push_back(std::move(pair));
    }
}

std::vector<Algorithm>* makeTable() {
  using enum Collective;
  static const std::vector<Collective> kFive = {allReduce, allGather, reduceScatter, broadcast, reduce};
  static const std::vector<Collective> kAllEight = {allReduce, allGather, reduceScatter, broadcast,
                                                    reduce,    allToAll,  gather,        scatter};
  // Of the collectives that cut their data for the ranks; whoever has a root is not like the others.
  const auto shifts = [](Collective collective, int32_t) {
    return hasRoot(collective) ? Symmetry::none : Symmetry::shift;
  };
  const auto exchanges = [](Collective, int32_t ranks) {
    return std::has_single_bit(static_cast<uint32_t>(ranks)) ? Symmetry::exclusiveOr : Symmetry::none;
  };
  auto* all = new std::vector<Algorithm>{
      {.name = "ring",
       .summary = "ring; chain for Broadcast and Reduce",
       .collectives = kFive,
       .generator = ring,
       .symmetry = shifts},
      {.name = "tree",
       .summary = "double binary tree, pipelined",
       .collectives = {allReduce, broadcast, reduce},
       .generator = doubleTreeSchedule},
      {.name = "doubling",
       .summary = "recursive doubling and halving",
       .collectives = {allReduce, allGather, reduceScatter},
       .onPowersOfTwo = {allGather, reduceScatter},
       .generator = recursiveDoubling,
       .symmetry = exchanges},
      {.name = "rabenseifner",
       .summary = "recursive halving, then doubling",
       .collectives = {allReduce},
       .generator = rabenseifner,
       .symmetry = exchanges},
      // Before circulant, which its messages equal where that has one block, with more steps.
      {.name = "binomial",
       .summary = "binomial tree",
       .collectives = {broadcast, reduce, gather, scatter},
       .generator = binomial},
      {.name = "circulant",
       .summary = "optimal rounds and volume for any number of ranks; pipelined for Broadcast and Reduce",
       .collectives = kFive,
       .generator = circulant,
       .symmetry = shifts,
       .takesBlocks = true},
      {.name = "pat",
       .summary = "parallel aggregated trees",
       .collectives = {allGather, reduceScatter},
       .generator = pat,
       .symmetry = shifts},
      {.name = "scatter_allgather",
       .summary = "binomial Scatter and circulant AllGather, or the same backwards",
       .collectives = {broadcast, reduce},
       .generator = scatterAllGather},
      {.name = "oneshot",
       .summary = "everyone reads all contributions from shared scratch",
       .medium = Medium::sharedScratch,
       .collectives = kAllEight,
       .generator = oneShot},
      {.name = "twoshot",
       .summary = "reduce one part from shared scratch, gather the others",
       .medium = Medium::sharedScratch,
       .collectives = {allReduce},
       .generator = twoShot},
      {.name = "direct",
       .summary = "zero-copy between mapped user buffers",
       .medium = Medium::userBuffers,
       .collectives = kAllEight,
       .generator = direct},
      {.name = "spread",
       .summary = "one message between every two ranks, all at once",
       .collectives = {allToAll, gather, scatter},
       .generator = spread,
       .symmetry = shifts},
      {.name = "pairwise",
       .summary = "exchanges with one rank after the other",
       .collectives = {allToAll},
       .generator = pairwise},
      {.name = "bruck",
       .summary = "blocks travel by the binary digits of their way",
       .collectives = {allToAll},
       .generator = bruck,
       .symmetry = shifts},
      {.name = "hierarchical",
       .summary = "rings over hosts, whose ranks share the work",
       .medium = Medium::hosts,
       .collectives = {allReduce},
       .generator = hierarchical},
  };
  addPairs(all);
  return all;
}

const std::vector<Algorithm>& table() {
  // Never destroyed, as programs may use communicators in static destructors.
  static const auto& kTable = *makeTable();
  return kTable;
}

bool equalIgnoringCase(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

Status checkRequest(const ScheduleRequest& request) {
  if (request.ranks < 1) return invalidArgument("{} ranks: at least 1 is needed", request.ranks);
  if (request.rank < 0 || request.rank >= request.ranks)
    return invalidArgument("rank {} is not one of {} ranks", request.rank, request.ranks);
  if (request.root < 0 || request.root >= request.ranks)
    return invalidArgument("root {} is not one of {} ranks", request.root, request.ranks);
  if (!request.layout.isPermutation()) return invalidArgument("the layout is not a permutation of the ranks");
  if (!request.layout.identity() && request.layout.size() != static_cast<size_t>(request.ranks))
    return invalidArgument("the layout orders {} ranks of {}", request.layout.size(), request.ranks);
  if (request.hosts.empty()) return Status::ok();
  std::vector<int32_t> all;
  for (const std::vector<int32_t>& ranks : request.hosts) {
    if (ranks.empty()) return invalidArgument("a host without ranks");
    all.insert(all.end(), ranks.begin(), ranks.end());
  }
  if (all.size() != static_cast<size_t>(request.ranks) || !Layout(all).isPermutation())
    return invalidArgument("the hosts do not hold each of the {} ranks once", request.ranks);
  return Status::ok();
}

}  // namespace

bool Algorithm::implements(Collective collective, int32_t ranks) const {
  if (std::ranges::find(collectives, collective) == collectives.end()) return false;
  return std::ranges::find(onPowersOfTwo, collective) == onPowersOfTwo.end() ||
         std::has_single_bit(static_cast<uint32_t>(ranks));
}

Schedule Algorithm::schedule(const ScheduleRequest& request) const {
  if (inter.empty()) return generator(request);
  ScheduleRequest pair = request;
  pair.intra = intra;
  pair.inter = inter;
  return generator(pair);
}

std::span<const Algorithm> algorithms() { return table(); }

const Algorithm* findAlgorithm(std::string_view name) {
  const auto& all = table();
  const auto found =
      std::ranges::find_if(all, [&](const Algorithm& a) { return equalIgnoringCase(a.name, name); });
  return found == all.end() ? nullptr : &*found;
}

Result<Schedule> generate(std::string_view algorithm, const ScheduleRequest& request) {
  const Algorithm* found = findAlgorithm(algorithm);
  if (found == nullptr) return invalidArgument("there is no algorithm \"{}\"", algorithm);
  TUTTI_TRY(checkRequest(request).withContext("algorithm {}", found->name));
  if (!found->implements(request.collective, request.ranks))
    return invalidArgument("algorithm {} does not implement {} on {} ranks", found->name,
                           name(request.collective), request.ranks);
  return found->schedule(request);
}

Result<std::vector<Schedule>> generateAll(std::string_view algorithm, ScheduleRequest request) {
  std::vector<Schedule> all;
  all.reserve(static_cast<size_t>(std::max(0, request.ranks)));
  if (request.ranks < 1) return invalidArgument("{} ranks: at least 1 is needed", request.ranks);
  for (request.rank = 0; request.rank < request.ranks; ++request.rank) {
    TUTTI_ASSIGN(Schedule schedule, generate(algorithm, request));
    all.push_back(std::move(schedule));
  }
  return all;
}

}  // namespace tutti
