// Flat programs say exactly what their schedules say, and broken schedules do not become programs.
#include "executor/cuda/flatten.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "algorithms/algorithm_filter.h"
#include "algorithms/registry.h"
#include "algorithms/segment_table.h"
#include "algorithms/send_recv.h"
#include "executor/step_rules.h"
#include "support/scale.h"

namespace tutti {
namespace {

using testing::HasSubstr;

// ---- one reading of a schedule, one of a program: every step of one slice, as text

std::string place(Buffer buffer, int32_t rank, int32_t segment) {
  return fmt::format(" {}[{}]@{}", static_cast<int>(buffer), segment, rank);
}

std::vector<int32_t> ranksOf(const Schedule& s, const Location& location, int team, int32_t i) {
  if (team >= 0) return s.teams[static_cast<size_t>(team)];
  return {location.rank == Affine(kSelf) ? s.rank : location.rank.at(i)};
}

void addPieces(const Schedule& s, const Location& location, int team, int32_t i, std::string* text) {
  const int32_t total = location.buffer == Buffer::scratch ? s.scratchSegments : s.segments();
  for (const int32_t rank : ranksOf(s, location, team, i))
    for (int32_t k = 0; k < location.count; ++k)
      *text +=
          place(location.buffer, rank, wrappedSegment(location.segment.at(i), location.pattern, k, total));
}

std::string readStep(const Schedule& s, const Step& step, int32_t i) {
  std::string text = name(step.kind);
  if (onlyOrders(step.kind)) {
    text += fmt::format(" flag {}", step.flag);
    const Affine& peer = step.kind == StepKind::signal ? step.peerTo : step.peerFrom;
    if (step.team < 0) return text + fmt::format(" rank {}", peer.at(i));
    for (const int32_t rank : s.teams[static_cast<size_t>(step.team)])
      if (rank != s.rank) text += fmt::format(" rank {}", rank);
    return text;
  }
  if (receives(step.kind)) text += fmt::format(" from {}:{}", step.peerFrom.at(i), step.portFrom);
  if (sends(step.kind)) text += fmt::format(" to {}:{}", step.peerTo.at(i), step.portTo);
  text += " source";
  if (readsSource(step.kind)) addPieces(s, step.src, step.team, i, &text);
  text += " destination";
  if (writesDestination(step.kind)) addPieces(s, step.dst, step.dstTeam, i, &text);
  text += " sizes";
  const SizeSegments sizes = sizeSegments(step);
  for (int32_t k = 0; k < movedSegments(step) && sizes.first != Affine(kNoSegment); ++k)
    text += fmt::format(" {}", wrappedSegment(sizes.first.at(i), sizes.pattern, k, s.segments()));
  return text + fmt::format(" x{} scaled {} first {} final {}", movedSegments(step),
                            static_cast<int>(scaledSources(step)), step.messageFirst, step.finalize);
}

using Reading = std::vector<std::vector<std::string>>;  // by lane

Reading read(const Schedule& s) {
  Reading lanes;
  for (const Lane& lane : s.lanes) {
    std::vector<std::string> steps;
    for (const Block& block : lane.blocks)
      for (int32_t i = 0; i < block.iterations; ++i)
        for (const Step& step : block.steps) steps.push_back(readStep(s, step, i));
    if (!steps.empty()) lanes.push_back(steps);
  }
  return lanes;
}

struct FlatReader {
  const device::Program& program;
  const device::Lane& lane;

  std::string link(uint32_t first, bool varies, int32_t i, bool sends) const {
    const uint16_t number = program.linkNumbers()[first + (varies ? static_cast<uint32_t>(i) : 0)];
    EXPECT_LT(number, lane.linkCount);
    const device::Link& link = program.links()[lane.firstLink + number];
    EXPECT_EQ(link.sends != 0, sends);
    return fmt::format(" {} {}:{}", sends ? "to" : "from", link.peer, link.port);
  }

  void addPieces(const device::Location& location, uint32_t team, uint32_t teamCount, int32_t pieces,
                 int32_t i, std::string* text) const {
    std::vector<int32_t> ranks;
    for (uint32_t r = 0; r < teamCount; ++r) ranks.push_back(program.rankNumbers()[team + r]);
    if (ranks.empty()) ranks.push_back(location.ofPeer != 0 ? location.rank.at(i) : program.rank);
    for (const int32_t rank : ranks)
      for (int32_t k = 0; k < pieces; ++k)
        *text += place(static_cast<Buffer>(location.buffer), rank, location.segments.at(i, k));
  }

  std::string readStep(const device::Step& step, int32_t i) const {
    const auto kind = static_cast<StepKind>(step.kind);
    std::string text = name(kind);
    if (onlyOrders(kind)) {
      text += fmt::format(" flag {}", step.flag);
      const uint32_t first = step.sourceTeam + (step.flagVaries != 0 ? static_cast<uint32_t>(i) : 0);
      for (uint32_t r = 0; r < (step.flagVaries != 0 ? 1 : step.sourceTeamCount); ++r)
        text += fmt::format(" rank {}", program.rankNumbers()[first + r]);
      return text;
    }
    if (step.receives != 0) text += link(step.receiveLink, step.receiveVaries != 0, i, false);
    if (step.sends != 0) text += link(step.sendLink, step.sendVaries != 0, i, true);
    text += " source";
    if (step.hasSource != 0)
      addPieces(step.source, step.sourceTeam, step.sourceTeamCount, step.pieces, i, &text);
    text += " destination";
    if (step.hasDestination != 0)
      addPieces(step.destination, step.destinationTeam, step.destinationTeamCount, step.pieces, i, &text);
    text += " sizes";
    for (int32_t k = 0; k < step.pieces && step.sizeKnown != 0; ++k)
      text += fmt::format(" {}", step.size.at(i, k));
    return text + fmt::format(" x{} scaled {} first {} final {}", step.pieces, static_cast<int>(step.scaled),
                              step.messageFirst != 0, step.finalize != 0);
  }
};

Reading read(const FlatProgram& flat) {
  const device::Program& program = flat.head();
  EXPECT_EQ(program.bytes, flat.bytes().size());
  Reading lanes;
  for (uint32_t l = 0; l < program.laneCount; ++l) {
    const device::Lane& lane = program.lanes()[l];
    const FlatReader reader{program, lane};
    std::vector<std::string> steps;
    for (uint32_t b = lane.firstBlock; b < lane.firstBlock + lane.blockCount; ++b) {
      const device::Block& block = program.blocks()[b];
      for (int32_t i = 0; i < block.iterations; ++i)
        for (uint32_t s = block.firstStep; s < block.firstStep + block.stepCount; ++s)
          steps.push_back(reader.readStep(program.steps()[s], i));
    }
    lanes.push_back(steps);
  }
  return lanes;
}

// ---- all shipped schedules

/// Of all ranks, for each number of ranks, collective and root; pairs on two uneven hosts, in both ways.
void forAllSchedules(int mostRanks, const std::function<void(const Schedule&)>& use) {
  for (const Algorithm& algorithm : algorithms()) {
    for (const Collective collective : algorithm.collectives) {
      for (int32_t ranks = 1; ranks <= mostRanks; ++ranks) {
        if (!algorithm.implements(collective, ranks)) continue;
        ScheduleRequest request;
        request.collective = collective;
        request.ranks = ranks;
        if (algorithm.medium == Medium::hosts)
          request.hosts = ranks == 1 ? consecutiveHosts({1}) : consecutiveHosts({(ranks + 1) / 2, ranks / 2});
        for (request.root = 0; request.root < (hasRoot(collective) ? ranks : 1); ++request.root) {
          for (const bool mapped : {false, true}) {
            if (mapped && algorithm.medium != Medium::hosts) continue;
            request.mapped = mapped;
            auto all = generateAll(algorithm.name, request);
            ASSERT_TRUE(all.isOk()) << all.status().message();
            for (const Schedule& schedule : *all) use(schedule);
          }
        }
      }
    }
  }
}

TEST(Flatten, EveryShippedScheduleBecomesAProgramThatSaysTheSame) {
  size_t count = 0;
  forAllSchedules(test::scaled(9, 6), [&](const Schedule& schedule) {
    auto flat = flatten(schedule);
    ASSERT_TRUE(flat.isOk()) << flat.status().message() << "\n" << toText(schedule);
    ASSERT_EQ(read(*flat), read(schedule)) << toText(schedule);
    ++count;
  });
  EXPECT_GT(count, 1000u);
}

TEST(Flatten, NoShippedScheduleHasMessagesWhoseSizeNobodyKnows) {
  forAllSchedules(test::scaled(9, 4), [&](const Schedule& schedule) {
    auto flat = flatten(schedule);
    ASSERT_TRUE(flat.isOk()) << flat.status().message();
    EXPECT_EQ(flat->head().hasUnknownSizes, 0) << toText(schedule);
  });
}

TEST(Flatten, TheHeadHoldsTheNumbersOfTheSchedule) {
  forAllSchedules(4, [&](const Schedule& schedule) {
    auto flat = flatten(schedule);
    ASSERT_TRUE(flat.isOk()) << flat.status().message();
    const device::Program& head = flat->head();
    bool messages = false;
    for (const Lane& lane : schedule.lanes)
      for (const Block& block : lane.blocks)
        for (const Step& step : block.steps) messages = messages || sends(step.kind) || receives(step.kind);
    EXPECT_EQ(head.sendsMessages != 0, messages) << toText(schedule);
    EXPECT_EQ(head.rank, schedule.rank);
    EXPECT_EQ(head.ranks, schedule.ranks);
    EXPECT_EQ(head.root, schedule.root);
    EXPECT_EQ(head.parts, schedule.parts);
    EXPECT_EQ(head.blocksOfData, schedule.blocks());
    EXPECT_EQ(head.scratchSegments, schedule.scratchSegments);
    EXPECT_EQ(head.usesScratch != 0, schedule.scratchSegments > 0);
    EXPECT_EQ(head.sharedScratch != 0, schedule.sharedScratch);
    EXPECT_EQ(head.usesPeerBuffers != 0, schedule.needsMappedUserBuffers());
    EXPECT_EQ(head.inputHoldsAll != 0, holdsAllBlocks(schedule.collective, Buffer::input));
    EXPECT_EQ(head.outputHoldsAll != 0, holdsAllBlocks(schedule.collective, Buffer::output));
  });
}

TEST(Flatten, GivesTheSameBytesForTheSameSchedule) {
  forAllSchedules(3, [&](const Schedule& schedule) {
    const Schedule copy = schedule;
    EXPECT_EQ(flatten(schedule).value().bytes(), flatten(copy).value().bytes());
  });
}

TEST(Flatten, AMessageToOneselfIsACopyAndOneToAPeerASendOnItsPort) {
  for (int32_t rank = 0; rank < 3; ++rank) {
    for (int32_t to = 0; to < 3; ++to) {
      const Schedule schedule = sendRecv(3, rank, 1, to);
      auto flat = flatten(schedule);
      ASSERT_TRUE(flat.isOk()) << flat.status().message();
      EXPECT_EQ(read(*flat), read(schedule));
      EXPECT_EQ(flat->head().laneCount, rank == 1 || rank == to ? 1u : 0u);
    }
  }
}

TEST(Flatten, AProgramOf4096RanksStaysShort) {
  auto schedule = generate("ring", {.collective = Collective::allReduce, .ranks = 4096, .rank = 17});
  ASSERT_TRUE(schedule.isOk());
  auto flat = flatten(*schedule);
  ASSERT_TRUE(flat.isOk()) << flat.status().message();
  EXPECT_LT(flat->bytes().size(), 4096u);
}

// ---- the numbers of both sides

template <typename A, typename B>
void expectSame(A a, B b) {
  EXPECT_EQ(static_cast<int>(a), static_cast<int>(b));
}

TEST(DeviceProgram, HasTheNumbersOfTheHost) {
  using D = device::StepKind;
  using H = StepKind;
  const std::vector<std::pair<H, D>> kinds = {{H::send, D::send},
                                              {H::recv, D::recv},
                                              {H::recvReduce, D::recvReduce},
                                              {H::recvReduceSend, D::recvReduceSend},
                                              {H::recvCopySend, D::recvCopySend},
                                              {H::recvReduceCopySend, D::recvReduceCopySend},
                                              {H::recvSend, D::recvSend},
                                              {H::copy, D::copy},
                                              {H::reduceLocal, D::reduceLocal},
                                              {H::reduceTeam, D::reduceTeam},
                                              {H::signal, D::signal},
                                              {H::wait, D::wait}};
  EXPECT_EQ(kinds.size(), static_cast<size_t>(StepKind::wait) + 1);
  for (const auto& [host, onDevice] : kinds) expectSame(host, onDevice);
  expectSame(Buffer::input, device::BufferKind::input);
  expectSame(Buffer::output, device::BufferKind::output);
  expectSame(Buffer::scratch, device::BufferKind::scratch);
  expectSame(Scaled::none, device::ScaledSources::none);
  expectSame(Scaled::first, device::ScaledSources::first);
  expectSame(Scaled::rest, device::ScaledSources::rest);
  expectSame(Scaled::all, device::ScaledSources::all);
  expectSame(Protocol::simple, device::Protocol::simple);
  expectSame(Protocol::ll, device::Protocol::ll);
  expectSame(Protocol::ll128, device::Protocol::ll128);
  expectSame(Reduction::sum, device::Op::sum);
  expectSame(Reduction::prod, device::Op::prod);
  expectSame(Reduction::max, device::Op::max);
  expectSame(Reduction::min, device::Op::min);
  EXPECT_EQ(static_cast<int>(device::kPorts), kMaxPorts);
  EXPECT_EQ(static_cast<int>(device::kFlags), kMaxFlags);
}

TEST(DeviceProgram, NumbersSegmentsAsTheHostDoes) {
  std::mt19937 random(3);
  const auto below = [&](int n) { return static_cast<int32_t>(random() % static_cast<unsigned>(n)); };
  for (int n = 0; n < 2000; ++n) {
    const int32_t total = 1 + below(40);
    const Affine first(below(total), below(9) - 4, total);
    const Pattern pattern{1 + below(4), 1 + below(9)};
    const device::Segments segments{
        {first.base, first.stride, first.modulus}, pattern.run, pattern.stride, total};
    for (int32_t i = 0; i < 5; ++i)
      for (int32_t k = 0; k < 7; ++k)
        ASSERT_EQ(segments.at(i, k), wrappedSegment(first.at(i), pattern, k, total));
  }
}

// ---- broken schedules

/// Rank 1's ring AllReduce of 4, changed by `change`, must be refused with a text that has all of `parts`.
void expectRefused(const std::function<void(Schedule&)>& change, const std::vector<std::string>& parts,
                   std::string_view algorithm = "ring") {
  auto made = generate(algorithm, {.collective = Collective::allReduce, .ranks = 4, .rank = 1});
  ASSERT_TRUE(made.isOk());
  Schedule schedule = std::move(made).value();
  ASSERT_TRUE(flatten(schedule).isOk());
  change(schedule);
  auto flat = flatten(schedule);
  ASSERT_FALSE(flat.isOk()) << toText(schedule);
  EXPECT_EQ(flat.status().code(), ncclInternalError);
  for (const std::string& part : parts) EXPECT_THAT(flat.status().message(), HasSubstr(part));
}

Step& firstOf(Schedule& schedule, StepKind kind) {
  for (Lane& lane : schedule.lanes)
    for (Block& block : lane.blocks)
      for (Step& step : block.steps)
        if (step.kind == kind) return step;
  ADD_FAILURE() << "no step " << name(kind);
  return schedule.lanes[0].blocks[0].steps[0];
}

TEST(FlattenRefuses, NumbersOutOfRangeWithLaneAndStep) {
  const std::string send = "schedule ring lane 0: step 1 send: ";
  expectRefused([](Schedule& s) { firstOf(s, StepKind::send).src.segment = 4; },
                {send, "1 segments from 4 on, there are 4"});
  expectRefused([](Schedule& s) { firstOf(s, StepKind::send).src.segment = -1; }, {send, "from -1 on"});
  expectRefused([](Schedule& s) { firstOf(s, StepKind::send).src.buffer = Buffer::scratch; },
                {send, "1 segments of 0"});
  expectRefused([](Schedule& s) { firstOf(s, StepKind::send).src.count = 5; }, {send, "5 segments of 4"});
  expectRefused([](Schedule& s) { firstOf(s, StepKind::send).src.count = 0; }, {send, "0 segments of 4"});
  expectRefused([](Schedule& s) { firstOf(s, StepKind::send).src.count = 2; },
                {send, "a message of 2 segments, the schedule has 1 at most"});
  expectRefused([](Schedule& s) { firstOf(s, StepKind::send).src.pattern.run = 0; }, {send, "runs of 0"});
  expectRefused([](Schedule& s) { firstOf(s, StepKind::send).src.rank = 4; }, {send, "rank 4 of 4"});
  expectRefused([](Schedule& s) { firstOf(s, StepKind::send).peerTo = 4; }, {send, "peer: rank 4 of 4"});
  expectRefused([](Schedule& s) { firstOf(s, StepKind::send).peerTo = -1; }, {send, "rank -1 of 4"});
  expectRefused([](Schedule& s) { firstOf(s, StepKind::send).peerTo = 1; }, {send, "rank 1 to itself"});
  expectRefused([](Schedule& s) { firstOf(s, StepKind::send).portTo = kMaxPorts; }, {send, "port 8"});
  expectRefused([](Schedule& s) { firstOf(s, StepKind::send).portTo = -1; }, {send, "port -1"});
}

TEST(FlattenRefuses, IterationsThatLeaveTheRange) {
  expectRefused(
      [](Schedule& s) {
        firstOf(s, StepKind::recvReduceSend).src.segment = {3, 1, 0};
      },
      {"lane 0: step 2 recvReduceSend: source: ", "there are 4"});
  expectRefused([](Schedule& s) { firstOf(s, StepKind::recvReduceSend).peerTo = Affine(3, 1, 0); },
                {"step 2 recvReduceSend: peer: rank 4 of 4"});
}

TEST(FlattenRefuses, HeadsThatMakeNoSense) {
  expectRefused([](Schedule& s) { s.rank = 4; }, {"schedule ring: rank 4 of 4"});
  expectRefused([](Schedule& s) { s.ranks = 0; }, {"rank 1 of 0"});
  expectRefused([](Schedule& s) { s.root = -1; }, {"root -1"});
  expectRefused([](Schedule& s) { s.parts = 0; }, {"0 parts"});
  expectRefused([](Schedule& s) { s.scratchSegments = -1; }, {"-1 of scratch"});
  expectRefused([](Schedule& s) { s.collective = Collective::broadcast; },
                {"lane 0: step", "Broadcast reduces nothing, but the schedule does"});
}

TEST(FlattenRefuses, StepsWithoutASize) {
  expectRefused(
      [](Schedule& s) {
        s.scratchSegments = 1;
        firstOf(s, StepKind::send).src = {Buffer::scratch, 0};
      },
      {"lane 0: step 1 send: ", "nothing tells how much it moves"});
}

TEST(FlattenRefuses, TeamsThatAreMissingEmptyOrForeign) {
  expectRefused([](Schedule& s) { firstOf(s, StepKind::reduceTeam).team = 9; },
                {"lane 0: step", "reduceTeam: team 9 of"}, "oneshot");
  expectRefused([](Schedule& s) { firstOf(s, StepKind::reduceTeam).team = -1; }, {"reduceTeam: team -1 of"},
                "oneshot");
  expectRefused(
      [](Schedule& s) {
        s.teams.emplace_back();
        firstOf(s, StepKind::reduceTeam).team = static_cast<int16_t>(s.teams.size() - 1);
      },
      {"lane 0: step", "is empty"}, "oneshot");
  expectRefused(
      [](Schedule& s) {
        s.teams.emplace_back();
        firstOf(s, StepKind::wait).team = static_cast<int16_t>(s.teams.size() - 1);
      },
      {"lane 0: step", "wait: ", "is empty"}, "oneshot");
  expectRefused(
      [](Schedule& s) {
        s.teams.push_back({2, 0, 2});
        firstOf(s, StepKind::signal).team = static_cast<int16_t>(s.teams.size() - 1);
      },
      {"signal: team 1 has a rank twice"}, "oneshot");
  expectRefused(
      [](Schedule& s) {
        s.ranks = static_cast<int32_t>(device::kMostMembers) + 1;
        s.teams[0].resize(device::kMostMembers + 1);
        std::iota(s.teams[0].begin(), s.teams[0].end(), 0);
      },
      {"reduceTeam: team 0 has 257 ranks, kernels know 256 at most"}, "direct");
  expectRefused([](Schedule& s) { s.teams[0].push_back(4); }, {"schedule oneshot: team 0: rank 4 of 4"},
                "oneshot");
  expectRefused([](Schedule& s) { firstOf(s, StepKind::reduceTeam).dstTeam = 7; }, {"team 7 of"}, "oneshot");
  expectRefused([](Schedule& s) { firstOf(s, StepKind::send).dstTeam = 0; },
                {"send: nothing to store for team 0"});
  expectRefused([](Schedule& s) { firstOf(s, StepKind::recv).team = 0; },
                {"recv: nothing to sum over team 0"});
  expectRefused(
      [](Schedule& s) {
        s.teams.push_back({0, 1});
        firstOf(s, StepKind::recvReduceSend).team = 0;
        firstOf(s, StepKind::recvReduceSend).messageFirst = false;
      },
      {"recvReduceSend: a message comes before the members of a team"});
}

TEST(FlattenRefuses, FlagsOutOfRangeOrOfTwoLanes) {
  expectRefused([](Schedule& s) { firstOf(s, StepKind::signal).flag = kMaxFlags; },
                {"lane 0: step", "signal: flag 16: there are 16"}, "oneshot");
  expectRefused([](Schedule& s) { firstOf(s, StepKind::wait).flag = -1; }, {"wait: flag -1"}, "oneshot");
  expectRefused([](Schedule& s) { s.lanes.emplace_back().signal(2, firstOf(s, StepKind::signal).flag); },
                {"lane 1: step 1 signal: lane 0 raises flag 0 of rank 2 too"}, "oneshot");
  expectRefused([](Schedule& s) { s.lanes.emplace_back().wait(3, firstOf(s, StepKind::wait).flag); },
                {"lane 1: step 1 wait: lane 0 waits for flag 0 of rank 3 too"}, "oneshot");
}

TEST(FlattenRefuses, AStreamOfMessagesInTwoLanes) {
  expectRefused(
      [](Schedule& s) {
        s.lanes.emplace_back().send(2, {Buffer::input, 0});
      },
      {"lane 1: step 1 send: messages to rank 2 port 0 are lane 0's"});
  expectRefused(
      [](Schedule& s) {
        s.lanes.emplace_back().recv(0, {Buffer::output, 0});
      },
      {"lane 1: step 1 recv: messages from rank 0 port 0 are lane 0's"});
}

TEST(FlattenRefuses, MoreConnectionsInALaneThanItsStateHasPlacesFor) {
  const auto most = static_cast<int32_t>(device::kMostLinks);
  Schedule schedule;
  schedule.name = "fan";
  schedule.collective = Collective::allGather;
  schedule.ranks = most + 2;
  schedule.lanes.emplace_back().loop(most).send(Affine(1, 1, 0), {Buffer::input, 0});
  EXPECT_TRUE(flatten(schedule).isOk()) << flatten(schedule).status().message();
  schedule.lanes[0].blocks[0].iterations = most + 1;
  EXPECT_THAT(flatten(schedule).status().message(),
              HasSubstr("lane 0: step 1 send: more than 256 connections in one lane"));
}

TEST(Flatten, SizesOfForwardedMessagesAreUnknownUnlessStated) {
  Schedule schedule;
  schedule.collective = Collective::broadcast;
  schedule.ranks = 3;
  schedule.rank = 1;
  schedule.maxCount = 2;
  schedule.parts = 4;
  Step& step = schedule.lanes.emplace_back().recvSend(0, 2, 2);
  auto unknown = flatten(schedule);
  ASSERT_TRUE(unknown.isOk()) << unknown.status().message();
  EXPECT_EQ(unknown->head().hasUnknownSizes, 1);
  EXPECT_EQ(unknown->head().steps()[0].sizeKnown, 0);
  step.sizeAs = 2;
  auto known = flatten(schedule);
  ASSERT_TRUE(known.isOk()) << known.status().message();
  EXPECT_EQ(known->head().hasUnknownSizes, 0);
  EXPECT_EQ(read(*known), read(schedule));
}

/// Any one number of any step replaced by any other: refused, or a program with the same meaning and with
/// numbers that kernels can use without looking.
TEST(Flatten, MutationsAreRefusedOrMeanWhatTheySay) {
  std::mt19937_64 random(11);
  const auto number = [&] { return static_cast<int32_t>(random() % 24) - 6; };
  std::vector<Schedule> schedules;
  forAllSchedules(4, [&](const Schedule& s) {
    if (s.rank == s.ranks / 2 && !s.lanes.empty()) schedules.push_back(s);
  });
  size_t refused = 0;
  size_t accepted = 0;
  const size_t rounds = test::scaled<size_t>(20000, 4000);
  for (size_t n = 0; n < rounds; ++n) {
    Schedule s = schedules[random() % schedules.size()];
    Lane& lane = s.lanes[random() % s.lanes.size()];
    Block& block = lane.blocks[random() % lane.blocks.size()];
    Step& step = block.steps[random() % block.steps.size()];
    const std::vector<std::function<void()>> changes = {
        [&] { step.kind = static_cast<StepKind>(random() % 12); },
        [&] {
          step.src.segment = {number(), number(), number()};
        },
        [&] {
          step.dst.segment = {number(), number(), number()};
        },
        [&] { step.src.count = number(); },
        [&] { step.dst.count = number(); },
        [&] {
          step.src.rank = {number(), number(), number()};
        },
        [&] {
          step.dst.pattern = {number(), number()};
        },
        [&] { step.src.buffer = static_cast<Buffer>(random() % 3); },
        [&] { step.dst.buffer = static_cast<Buffer>(random() % 3); },
        [&] {
          step.peerFrom = {number(), number(), number()};
        },
        [&] {
          step.peerTo = {number(), number(), number()};
        },
        [&] { step.portFrom = static_cast<int16_t>(number()); },
        [&] { step.portTo = static_cast<int16_t>(number()); },
        [&] { step.flag = static_cast<int16_t>(number()); },
        [&] { step.team = static_cast<int16_t>(number()); },
        [&] { step.dstTeam = static_cast<int16_t>(number()); },
        [&] {
          step.sizeAs = {number(), number(), number()};
        },
        [&] { block.iterations = number(); },
        [&] { s.lanes.push_back(lane); },
        [&] { s.maxCount = number(); },
        [&] { s.scratchSegments = number(); },
        [&] { s.parts = number(); },
    };
    changes[random() % changes.size()]();
    auto flat = flatten(s);
    if (!flat.isOk()) {
      ++refused;
      EXPECT_THAT(flat.status().message(), HasSubstr("schedule " + s.name));
      continue;
    }
    ++accepted;
    ASSERT_EQ(read(*flat), read(s)) << toText(s);
  }
  EXPECT_GT(refused, rounds / 10);
  EXPECT_GT(accepted, rounds / 10);
}

}  // namespace
}  // namespace tutti
