// The checker must notice every way to break a schedule by one small change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "algorithms/checker.h"
#include "algorithms/registry.h"

namespace tutti {
namespace {

struct Mutation {
  std::string what;
  std::function<bool(Block&, size_t)> apply;  // false: does not fit this step
};

bool movesLocal(const Step& s) { return !onlyOrders(s.kind); }
bool usesSrc(const Step& s) { return readsSource(s.kind); }
bool usesDst(const Step& s) { return writesDestination(s.kind); }

std::vector<Mutation> mutations(int32_t ranks) {
  const auto shift = [](Affine& a, int32_t by, int32_t modulus) { a.base = (a.base + by) % modulus; };
  return {
      {"drop",
       [](Block& b, size_t i) {
         b.steps.erase(b.steps.begin() + static_cast<ptrdiff_t>(i));
         return true;
       }},
      {"double",
       [](Block& b, size_t i) {
         const Step copy = b.steps[i];
         b.steps.insert(b.steps.begin() + static_cast<ptrdiff_t>(i), copy);
         return true;
       }},
      {"swap with next",
       [](Block& b, size_t i) {
         if (i + 1 >= b.steps.size()) return false;
         std::swap(b.steps[i], b.steps[i + 1]);
         return true;
       }},
      {"one iteration less",
       [](Block& b, size_t i) {
         if (i > 0 || b.iterations < 2) return false;
         --b.iterations;
         return true;
       }},
      {"one iteration more",
       [](Block& b, size_t i) {
         if (i > 0 || b.iterations < 2) return false;
         ++b.iterations;
         return true;
       }},
      {"other target",
       [=](Block& b, size_t i) {
         Step& s = b.steps[i];
         if (!sends(s.kind) && !(s.kind == StepKind::signal && s.team < 0)) return false;
         shift(s.peerTo, 1, ranks);
         return true;
       }},
      {"other source",
       [=](Block& b, size_t i) {
         Step& s = b.steps[i];
         if (!receives(s.kind) && !(s.kind == StepKind::wait && s.team < 0)) return false;
         shift(s.peerFrom, 1, ranks);
         return true;
       }},
      {"other port",
       [](Block& b, size_t i) {
         Step& s = b.steps[i];
         if (!sends(s.kind)) return false;
         s.portTo = static_cast<int16_t>(s.portTo + 1);
         return true;
       }},
      {"other source segment",
       [=](Block& b, size_t i) {
         Step& s = b.steps[i];
         if (!usesSrc(s)) return false;
         shift(s.src.segment, 1, std::max(2, ranks));
         return true;
       }},
      {"other destination segment",
       [=](Block& b, size_t i) {
         Step& s = b.steps[i];
         if (!usesDst(s)) return false;
         shift(s.dst.segment, 1, std::max(2, ranks));
         return true;
       }},
      {"other source rank",
       [=](Block& b, size_t i) {
         Step& s = b.steps[i];
         if (!usesSrc(s) || s.src.rank == Affine(kSelf)) return false;
         shift(s.src.rank, 1, ranks);
         return true;
       }},
      {"other destination rank",
       [=](Block& b, size_t i) {
         Step& s = b.steps[i];
         if (!usesDst(s) || s.dst.rank == Affine(kSelf)) return false;
         shift(s.dst.rank, 1, ranks);
         return true;
       }},
      {"input for output",
       [](Block& b, size_t i) {
         Step& s = b.steps[i];
         if (!usesSrc(s) || s.src.buffer != Buffer::output) return false;
         s.src.buffer = Buffer::input;
         return true;
       }},
      {"output for input",
       [](Block& b, size_t i) {
         Step& s = b.steps[i];
         if (!usesSrc(s) || s.src.buffer != Buffer::input) return false;
         s.src.buffer = Buffer::output;
         return true;
       }},
      {"finalize changed",
       [](Block& b, size_t i) {
         Step& s = b.steps[i];
         if (!movesLocal(s)) return false;
         s.finalize = !s.finalize;
         return true;
       }},
      {"other flag",
       [](Block& b, size_t i) {
         Step& s = b.steps[i];
         if (movesLocal(s)) return false;
         s.flag = static_cast<int16_t>(s.flag + 1);
         return true;
       }},
      {"own memory for the team's",
       [](Block& b, size_t i) {
         Step& s = b.steps[i];
         if (!movesLocal(s) || s.team < 0) return false;
         s.team = -1;
         return true;
       }},
      {"result for the own rank alone",
       [](Block& b, size_t i) {
         Step& s = b.steps[i];
         if (s.dstTeam < 0) return false;
         s.dstTeam = -1;
         return true;
       }},
      {"message last",
       [](Block& b, size_t i) {
         Step& s = b.steps[i];
         if (!receives(s.kind) || s.team < 0) return false;
         s.messageFirst = false;
         return true;
       }},
      {"reduce becomes copy",
       [](Block& b, size_t i) {
         Step& s = b.steps[i];
         if (s.kind != StepKind::reduceTeam && s.kind != StepKind::recvReduce) return false;
         s.kind = s.kind == StepKind::recvReduce ? StepKind::recv : StepKind::copy;
         return true;
       }},
  };
}

bool ownMemory(const Location& l) { return l.rank == Affine(kSelf); }

/// The segments that a step reads (or writes) in the own memory, as (buffer, number) pairs.
std::set<std::pair<Buffer, int32_t>> touched(const Schedule& schedule, const Step& step, bool writes) {
  std::set<std::pair<Buffer, int32_t>> found;
  if (onlyOrders(step.kind) || !(writes ? usesDst(step) : usesSrc(step))) return found;
  const Location& location = writes ? step.dst : step.src;
  const int32_t total = location.buffer == Buffer::scratch ? schedule.scratchSegments : schedule.segments();
  for (int32_t k = 0; k < location.count; ++k)
    found.emplace(location.buffer, wrappedSegment(location.segment.at(0), location.pattern, k, total));
  return found;
}

using Places = std::set<std::pair<Buffer, int32_t>>;

/// In place, input and output are one buffer.
Places inPlace(const Places& places) {
  Places found;
  for (const auto& [buffer, segment] : places)
    found.emplace(buffer == Buffer::input ? Buffer::output : buffer, segment);
  return found;
}

bool meet(const Places& a, const Places& b) {
  return std::ranges::any_of(a, [&](const auto& place) { return b.contains(place); });
}

/// Whether one of the steps writes what the other reads or writes, out of place or in place.
bool exchangeData(const Schedule& schedule, const Step& a, const Step& b) {
  for (const bool alias : {false, true}) {
    const auto places = [&](const Step& step, bool writes) {
      // A copy of a block to its place does nothing in place.
      const bool nothing = alias && step.kind == StepKind::copy && !isReduction(schedule.collective) &&
                           step.src.segment == step.dst.segment && step.src.buffer != step.dst.buffer;
      if (nothing) return Places();
      return alias ? inPlace(touched(schedule, step, writes)) : touched(schedule, step, writes);
    };
    if (meet(places(a, true), places(b, false)) || meet(places(b, true), places(a, false)) ||
        meet(places(a, true), places(b, true)))
      return true;
  }
  return false;
}

/// Two steps with messages, or copies, that touch different data and different streams: their order does not
/// matter, unless another rank waits for the one that comes later.
bool independent(const Schedule& schedule, const Step& a, const Step& b) {
  for (const Step* step : {&a, &b})
    if (onlyOrders(step->kind) || step->team >= 0 || !ownMemory(step->src) || !ownMemory(step->dst))
      return false;
  if (sends(a.kind) && sends(b.kind) && a.peerTo == b.peerTo && a.portTo == b.portTo) return false;
  if (receives(a.kind) && receives(b.kind) && a.peerFrom == b.peerFrom && a.portFrom == b.portFrom)
    return false;
  return !exchangeData(schedule, a, b);
}

/// Why the mutation cannot be noticed: it makes a different schedule that is right too. Empty: it is wrong.
/// `next` is the step after, null at the end of a block.
std::string whyHarmless(const std::string& algorithm, Collective collective, const std::string& what,
                        const Schedule& schedule, const Step& step, const Step* next) {
  const bool stores = step.kind == StepKind::copy || step.kind == StepKind::reduceTeam;
  const bool replacesItsSource = step.kind == StepKind::reduceTeam && step.src.buffer == step.dst.buffer;
  const bool inPlaceToo = (algorithm == "direct" || algorithm.starts_with("hierarchical/")) &&
                          step.kind == StepKind::reduceTeam && step.dst.buffer == Buffer::output;
  // (In place, the first time scales the input of a reduction where it lies.)
  const bool scalesInput = isReduction(collective) && step.kind == StepKind::copy &&
                           step.src.buffer == Buffer::input && step.dst.buffer == Buffer::output;
  if (what == "double" && stores && !replacesItsSource && !inPlaceToo && !scalesInput)
    return "stores the same values again";
  // (Gather through scratch: the one block more would be the root's own, which is not in its scratch.)
  const bool ownBlockMissing = algorithm == "oneshot" && collective == Collective::gather;
  if (what == "one iteration more" && step.kind == StepKind::copy && !ownBlockMissing)
    return "gets one block again";
  if (what == "input for output" && collective == Collective::broadcast && schedule.rank == schedule.root)
    return "the root has the data in both";
  if (what == "input for output" && collective == Collective::allGather && step.src.count == 1 &&
      step.src.segment == Affine(schedule.rank))
    return "the own block is the same in both";
  if (what != "swap with next" || next == nullptr) return {};
  const int32_t place = wrap(schedule.rank - schedule.root, schedule.ranks);
  if (algorithm == "scatter_allgather" && collective == Collective::broadcast &&
      step.kind == StepKind::recv && step.dst.count == 1 && place % 2 == 0 && place > 0 &&
      step.dst.segment == Affine(place + 1))
    return "the scatter has brought the next place's part, too";
  if (step.kind == StepKind::signal && next->kind == StepKind::wait && step.team >= 0)
    return "a single rank that waits before it signals comes last, and nobody waits for it twice";
  if (algorithm == "doubling" && collective == Collective::allGather && step.kind == StepKind::send &&
      next->kind == StepKind::recv)
    return "a single rank that receives before it sends comes last";
  const bool bothAdd = step.kind == StepKind::recvReduce && next->kind == StepKind::recvReduce;
  if (bothAdd && step.dst == next->dst && step.src == next->src && step.src == step.dst &&
      step.finalize == next->finalize)
    return "adds in another order";
  for (const Step* copy : {&step, next})
    if (!exchangeData(schedule, step, *next) && copy->kind == StepKind::copy &&
        copy->dst.buffer == Buffer::output && ownMemory(copy->dst) && ownMemory(copy->src) &&
        copy->dstTeam < 0)
      return "nobody else looks at the own output, and its source stays until the end";
  if (algorithm == "oneshot" && collective == Collective::reduce && step.kind == StepKind::copy)
    return "only the root itself reads its scratch";
  return {};
}

/// Ranks where the reason above holds; the others must be caught.
bool rootOnlyReason(const std::string& algorithm, Collective collective, const std::string& what,
                    const Step& step) {
  return algorithm == "oneshot" && collective == Collective::reduce && what == "swap with next" &&
         step.kind == StepKind::copy;
}

struct Site {
  int32_t rank;
  size_t lane, block, step;
};

std::vector<Site> sites(const ScheduleSet& set) {
  std::vector<Site> all;
  for (const Schedule& s : set)
    for (size_t l = 0; l < s.lanes.size(); ++l)
      for (size_t b = 0; b < s.lanes[l].blocks.size(); ++b)
        for (size_t i = 0; i < s.lanes[l].blocks[b].steps.size(); ++i) all.push_back({s.rank, l, b, i});
  return all;
}

/// The algorithm's name without "_mapped".
std::string unmapped(const std::string& name) { return name.substr(0, name.rfind("_mapped")); }

/// Schedules of all ranks. "hierarchical" is one host for every two ranks, "hierarchical_mapped" with mapped
/// buffers on them.
Result<std::vector<Schedule>> generateNamed(const std::string& name, Collective collective, int32_t ranks,
                                            int32_t root) {
  ScheduleRequest request{collective, ranks, 0, root, {}};
  if (!name.starts_with("hierarchical")) return generateAll(name, request);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    if (rank % 2 == 0) request.hosts.emplace_back();
    request.hosts.back().push_back(rank);
  }
  request.mapped = name.ends_with("_mapped");
  return generateAll(unmapped(name), request);
}

class EveryAlgorithm : public testing::TestWithParam<std::tuple<std::string, int32_t>> {};

TEST_P(EveryAlgorithm, IsCaughtWhenOneStepIsWrong) {
  const auto& [name, ranks] = GetParam();
  int caught = 0;
  int harmless = 0;
  const Algorithm& algorithm = *findAlgorithm(unmapped(name));
  for (const Collective collective : algorithm.collectives) {
    if (!algorithm.implements(collective, ranks)) continue;
    const int32_t root = ranks / 2;
    auto made = generateNamed(name, collective, ranks, root);
    ASSERT_TRUE(made.isOk()) << made.status().message();
    ASSERT_TRUE(prove(*made).isOk()) << prove(*made).status().message();
    for (const Site& site : sites(*made))
      for (const Mutation& mutation : mutations(ranks)) {
        ScheduleSet bad = *made;
        const Block& block = (*made)[static_cast<size_t>(site.rank)].lanes[site.lane].blocks[site.block];
        Schedule& changed = bad[static_cast<size_t>(site.rank)];
        if (!mutation.apply(changed.lanes[site.lane].blocks[site.block], site.step)) continue;
        if (changed.lanes == (*made)[static_cast<size_t>(site.rank)].lanes) continue;
        changed = tidy(changed);
        const Step& step = block.steps[site.step];
        const Step* next = site.step + 1 < block.steps.size() ? &block.steps[site.step + 1] : nullptr;
        std::string reason =
            whyHarmless(name, collective, mutation.what, (*made)[static_cast<size_t>(site.rank)], step, next);
        if (rootOnlyReason(name, collective, mutation.what, step) && site.rank != root) reason.clear();
        const auto result = prove(bad);
        const bool accepted = result.isOk();
        const bool swapsFreely = mutation.what == "swap with next" && block.iterations == 1 &&
                                 next != nullptr &&
                                 independent((*made)[static_cast<size_t>(site.rank)], step, *next);
        if (swapsFreely && (accepted || result.status().message().find("deadlock") != std::string::npos)) {
          ++(accepted ? harmless : caught);
          continue;
        }
        EXPECT_EQ(accepted, !reason.empty())
            << name << " " << tutti::name(collective) << " rank " << site.rank << " of " << ranks << ": "
            << mutation.what << " of \"" << toText(step) << "\" " << reason;
        ++(accepted ? harmless : caught);
      }
  }
  EXPECT_GT(caught, 2 * harmless);
}

std::string nameOfCase(const testing::TestParamInfo<std::tuple<std::string, int32_t>>& test) {
  std::string text = std::get<0>(test.param) + "_" + std::to_string(std::get<1>(test.param));
  std::ranges::replace(text, '/', '_');
  return text;
}

INSTANTIATE_TEST_SUITE_P(
    Mutations, EveryAlgorithm,
    testing::Combine(testing::Values("ring", "tree", "doubling", "rabenseifner", "circulant", "pat",
                                     "binomial", "scatter_allgather", "oneshot", "twoshot", "direct",
                                     "spread", "pairwise", "bruck", "hierarchical", "hierarchical_mapped"),
                     testing::Values(2, 3, 4, 5, 8)),
    nameOfCase);

std::vector<std::string> pairs() {
  std::vector<std::string> names;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.inter.empty()) continue;
    names.emplace_back(algorithm.name);
    if (algorithm.intra == "direct") names.push_back(names.back() + "_mapped");
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(MutationsOfPairs, EveryAlgorithm,
                         testing::Combine(testing::ValuesIn(pairs()), testing::Values(5)), nameOfCase);

ScheduleSet make(std::string_view algorithm, Collective collective, int32_t ranks, int32_t root = 0) {
  auto made = generateAll(algorithm, {collective, ranks, 0, root, {}});
  EXPECT_TRUE(made.isOk());
  return std::move(made).value();
}

void expectFailure(const Result<Certificate>& result, const std::vector<std::string>& words) {
  ASSERT_FALSE(result.isOk());
  for (const std::string& word : words)
    EXPECT_NE(result.status().message().find(word), std::string::npos)
        << "\"" << word << "\" is not in: " << result.status().message();
}

TEST(Mutations, AFifoOfOneSlotStopsTheRingAndNothingElse) {
  for (const Algorithm& algorithm : algorithms())
    for (const Collective collective : algorithm.collectives) {
      if (!algorithm.inter.empty()) continue;  // made of the others
      const bool chain = collective == Collective::broadcast || collective == Collective::reduce;
      for (const int32_t ranks : {2, 4, 8}) {
        const ScheduleSet set = make(algorithm.name, collective, ranks);
        const bool fits = prove(set, {.fifoSlots = 1}).isOk();
        // (Without hosts, the hierarchical algorithm is a ring.)
        const bool pending =
            (algorithm.name == "ring" || algorithm.name == "hierarchical") && !chain &&
            !(ranks == 2 && collective != Collective::allReduce);  // two ranks: one message each
        EXPECT_EQ(fits, !pending) << algorithm.name << " " << name(collective) << " " << ranks;
        EXPECT_TRUE(prove(set, {.fifoSlots = 2}).isOk());
      }
    }
  expectFailure(prove(make("ring", Collective::allReduce, 4), {.fifoSlots = 1}),
                {"deadlock with 1 FIFO slots", "ring AllReduce", "rank 0 lane 0 slice 0",
                 "waits for a free slot to rank 1"});
}

TEST(Mutations, ScratchThatDoesNotAlternateIsARace) {
  for (const char* name : {"oneshot", "twoshot"})
    for (const Collective collective : findAlgorithm(name)->collectives)
      for (const int32_t slices : {1, 3}) {
        const ScheduleSet set = make(name, collective, 3);
        const auto result = prove(set, {.slices = slices, .scratchHalves = 1});
        expectFailure(result, {"race", name});
      }
}

// The root of this Broadcast waits for nobody. Alone and called twice, alternating halves hide it; the third
// slice run would overwrite what a slow reader still needs.
TEST(Mutations, ASharedScratchScheduleWithoutATurnIsRefused) {
  ScheduleSet set = make("oneshot", Collective::broadcast, 3);
  for (Schedule& schedule : set) {
    schedule.lanes.clear();
    Lane& lane = schedule.lanes.emplace_back();
    if (schedule.rank == 0) {
      lane.copy({Buffer::input, 0}, {Buffer::scratch, 0});
      lane.signalTeam(0);
      lane.copy({Buffer::input, 0}, {Buffer::output, 0});
    } else {
      lane.wait(0);
      lane.copy({Buffer::scratch, 0, 1, 0}, {Buffer::output, 0});
    }
  }
  expectFailure(prove(set, {.slices = 1}), {"oneshot Broadcast", "rank 0 lane 0 ends slice 0",
                                            "the run after the next could overwrite scratch"});
}

TEST(Mutations, AZeroCopyCallWithoutItsExitBarrierLetsTheUserReuseABufferInUse) {
  for (const Collective collective : findAlgorithm("direct")->collectives) {
    ScheduleSet set = make("direct", collective, 4);
    for (Schedule& schedule : set) {
      std::vector<Step>& steps = schedule.lanes[0].blocks.back().steps;
      while (!steps.empty() && (steps.back().kind == StepKind::wait || steps.back().kind == StepKind::signal))
        steps.pop_back();
      schedule = tidy(schedule);
    }
    expectFailure(prove(set), {"direct"});
  }
  ScheduleSet set = make("direct", Collective::allGather, 4);
  for (Schedule& schedule : set) {
    std::vector<Step>& steps = schedule.lanes[0].blocks.back().steps;
    steps.resize(steps.size() - 2);
    schedule = tidy(schedule);
  }
  const Result<Certificate> result = prove(set);
  ASSERT_FALSE(result.isOk());
  EXPECT_THAT(result.status().message(),
              testing::AnyOf(testing::HasSubstr("race: input[0] of rank 0 is used"),
                             testing::HasSubstr("may return from call 0 while rank")));
}

TEST(Mutations, ExchangesThatReduceInDifferentOrdersAreRefused) {
  ScheduleSet set = make("doubling", Collective::allReduce, 4);
  for (Schedule& schedule : set)
    for (Step& step : schedule.lanes[0].blocks[0].steps) step.messageFirst = false;
  expectFailure(prove(set), {"results could differ in their last bits"});
  EXPECT_TRUE(prove(set, {.requireIdenticalResults = false}).isOk());
}

TEST(Mutations, ErrorsNameScheduleRankLaneSliceStepAndSegment) {
  ScheduleSet set = make("ring", Collective::allReduce, 4);
  set[2].lanes[0].blocks[1].steps[0].src.segment.base += 1;
  expectFailure(prove(set), {"call 0", "ring AllReduce", "rank 2 of 4", "lane 0", "slice 0", "recvReduceSend",
                             "(i = 0)", "reduces segment"});
}

TEST(Mutations, ASecondLaneMayNotUseAStreamOfTheFirst) {
  ScheduleSet set = make("tree", Collective::allReduce, 4);
  for (Schedule& schedule : set)
    for (Lane& lane : schedule.lanes)
      for (Step& step : lane.blocks[0].steps) step.portFrom = step.portTo = 0;
  expectFailure(prove(set), {"messages from rank", "on port 0 belong to lane"});
}

TEST(Mutations, SizesMustBeThoseOfTheDataThatMoves) {
  ScheduleSet set = make("twoshot", Collective::allReduce, 3);
  const auto sum = [](Schedule& schedule) -> Step& {
    for (Step& step : schedule.lanes[0].blocks[0].steps)
      if (step.kind == StepKind::reduceTeam) return step;
    throw std::logic_error("no reduceTeam");
  };
  sum(set[1]).sizeAs = 2;
  expectFailure(prove(set), {"moves segment 1 with the size of segment 2"});
  sum(set[1]).sizeAs = kNoSegment;
  expectFailure(prove(set), {"nothing tells the size"});
}

/// One rank, one or more lanes: the smallest schedules that break one rule each.
Result<Certificate> checkAlone(const std::function<void(Schedule&)>& build, CheckOptions options = {}) {
  Schedule schedule;
  schedule.name = "alone";
  schedule.parts = 3;
  schedule.maxCount = 0;
  schedule.scratchSegments = 3;
  schedule.flags = 2;
  build(schedule);
  const ScheduleSet set = {schedule};
  const ScheduleSet* calls[] = {&set};
  return check(calls, options);
}

Location part(Buffer buffer, int32_t first, int32_t count = 1) { return {buffer, first, count, kSelf}; }

void finish(Lane& lane) { lane.copy(part(Buffer::input, 0, 3), part(Buffer::output, 0, 3)).finalize = true; }

TEST(Mutations, AMessageOrRaiseTooManyIsNoticed) {
  const auto with = [](auto change, int32_t slices) {
    ScheduleSet set = make("oneshot", Collective::allReduce, 2);
    for (Schedule& schedule : set) schedule.maxCount = 1;
    change(set[0].lanes[0]);
    const ScheduleSet* calls[] = {&set};
    return check(calls, {.slices = slices});
  };
  const auto send = [](Lane& lane) { lane.send(1, {Buffer::input, 0}); };
  const auto raise = [](Lane& lane) { lane.signal(1); };
  expectFailure(with(send, 1), {"message(s) of rank 0 for rank 1", "never taken"});
  expectFailure(with(raise, 1), {"raise(s) of a flag of rank 0 for rank 1", "never taken"});
  expectFailure(with(raise, 3), {"takes a raise of flag 0 by rank 0 in call 0 slice 0"});
  ScheduleSet ring = make("ring", Collective::allReduce, 3);
  ring[0].lanes[0].send(1, {Buffer::output, 0});
  expectFailure(prove(ring), {"takes a message that was sent in call 0 slice 0"});
}

// Lane 2 writes, lane 1 reads, lane 2 writes again when lane 0 says so, which knows nothing of the read. In
// whatever order the checker executes the lanes, it must see that nothing orders the read before the second
// write.
TEST(Mutations, WritingWhatAnotherLaneStillReadsIsARace) {
  for (const int rotate : {0, 1, 2})
    expectFailure(checkAlone(
                      [&](Schedule& schedule) {
                        schedule.lanes.resize(3);
                        Lane& starter = schedule.lanes[static_cast<size_t>(rotate)];
                        Lane& reader = schedule.lanes[static_cast<size_t>((rotate + 1) % 3)];
                        Lane& writer = schedule.lanes[static_cast<size_t>((rotate + 2) % 3)];
                        starter.signal(0, 1);
                        writer.copy(part(Buffer::input, 0), part(Buffer::scratch, 0));
                        writer.signal(0, 0);
                        writer.wait(0, 1);
                        writer.copy(part(Buffer::input, 0), part(Buffer::scratch, 0));
                        reader.wait(0, 0);
                        reader.copy(part(Buffer::scratch, 0), part(Buffer::output, 0)).finalize = true;
                        reader.copy(part(Buffer::input, 1, 2), part(Buffer::output, 1, 2)).finalize = true;
                      },
                      {.slices = 1}),
                  {"race", "scratch[0] of rank 0 is not ordered after rank 0 lane"});
}

TEST(Mutations, OverlapsAndWritesToInputsAreRefused) {
  expectFailure(checkAlone([](Schedule& schedule) {
                  Lane& lane = schedule.lanes.emplace_back();
                  lane.copy(part(Buffer::input, 0, 2), part(Buffer::scratch, 0, 2));
                  lane.copy(part(Buffer::scratch, 0, 2), part(Buffer::scratch, 1, 2)).sizeAs = 0;
                  finish(lane);
                }),
                {"source and destination overlap at scratch[1]"});
  expectFailure(checkAlone([](Schedule& schedule) {
                  Lane& lane = schedule.lanes.emplace_back();
                  finish(lane);
                  lane.copy(part(Buffer::output, 0), part(Buffer::input, 0));
                }),
                {"input[0] of rank 0 is written, but inputs are read-only"});
}

TEST(Mutations, InPlaceTheInputMayNotBeReadAfterItsResultNorAsOne) {
  const auto inputAfterResult = [](Schedule& schedule) {
    Lane& lane = schedule.lanes.emplace_back();
    finish(lane);
    lane.copy(part(Buffer::input, 1), part(Buffer::scratch, 1));
  };
  EXPECT_TRUE(checkAlone(inputAfterResult).isOk());
  expectFailure(checkAlone(inputAfterResult, {.inPlace = true}),
                {"input[1] of rank 0 is read as input, but a result has replaced it"});
  expectFailure(checkAlone(
                    [](Schedule& schedule) {
                      Lane& lane = schedule.lanes.emplace_back();
                      lane.copy(part(Buffer::output, 1), part(Buffer::scratch, 1));
                      finish(lane);
                    },
                    {.inPlace = true}),
                {"output[1] of rank 0 is read, but holds the raw input"});
}

TEST(Mutations, DeclarationsMustCoverWhatIsUsed) {
  const ScheduleSet good = make("oneshot", Collective::allReduce, 3);
  const auto with = [&](auto change) {
    ScheduleSet set = good;
    for (Schedule& schedule : set) change(schedule);
    return prove(set);
  };
  expectFailure(with([](Schedule& s) { s.sharedScratch = false; }), {"does not declare sharedScratch"});
  expectFailure(with([](Schedule& s) { s.scratchSegments = 0; }), {"there is no scratch[0]"});
  expectFailure(with([](Schedule& s) { s.flags = 0; }), {"flag 0 is not one of the 0 declared"});
  expectFailure(with([](Schedule& s) { s.teams.clear(); }), {"there is no team 0"});
  expectFailure(with([](Schedule& s) { s.teams[0][1] = s.teams[0][0]; }), {"team 0 names rank 0 twice"});
  expectFailure(with([](Schedule& s) { s.parts = s.rank + 1; }), {"differ in a number"});
  ScheduleSet doubling = make("doubling", Collective::allGather, 4);
  for (Schedule& schedule : doubling) schedule.maxCount = 1;
  expectFailure(prove(doubling), {"moves 2 segments; maxCount is 1"});
  ScheduleSet direct = make("direct", Collective::allGather, 3);
  for (Schedule& schedule : direct) schedule.sharedUserBuffers = false;
  expectFailure(prove(direct), {"does not declare sharedUserBuffers"});
}

}  // namespace
}  // namespace tutti
