// What the executor asks of a driver: launches, memory, events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "algorithms/registry.h"
#include "algorithms/send_recv.h"
#include "base/datatype.h"
#include "executor/cuda/cuda_executor.h"
#include "executor/cuda/cuda_program.h"
#include "fake_driver.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

DeviceStream streamOf(uintptr_t number) {
  return static_cast<DeviceStream>(static_cast<char*>(nullptr) + number);
}

uint64_t newGroupKey() {
  static std::atomic<uint64_t> last{1u << 20};
  return ++last;
}

DeviceGroupOptions smallGroup(int ranks) {
  DeviceGroupOptions options;
  options.layout = {static_cast<uint32_t>(ranks), 4, 16 * 1024};
  options.slotBytes = 4096;
  options.linesOfSlotLL = 512;
  options.linesOfSlotLL128 = 32;
  return options;
}

/// Executors of all ranks on a fake driver.
class FakeTeam {
 public:
  explicit FakeTeam(int ranks, int devices = 8) {
    std::vector<std::shared_ptr<DeviceGroup>> groups(static_cast<size_t>(ranks));
    const uint64_t key = newGroupKey();
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        auto group = DeviceGroup::join(driver, key, r, ranks, r % devices, smallGroup(ranks), nullptr,
                                       Deadline::after(std::chrono::seconds(20)));
        ASSERT_TRUE(group.isOk()) << group.status().message();
        groups[static_cast<size_t>(r)] = *group;
      });
    for (auto& thread : threads) thread.join();
    for (int r = 0; r < ranks; ++r) {
      auto executor = CudaExecutor::create(driver, groups[static_cast<size_t>(r)], r);
      EXPECT_TRUE(executor.isOk()) << executor.status().message();
      executors.push_back(std::move(executor).value());
    }
  }

  CudaCall call(std::string_view algorithm, int rank, size_t count, int channels = 1,
                Collective collective = Collective::allReduce, int root = 0) {
    ScheduleRequest request;
    request.collective = collective;
    request.ranks = static_cast<int32_t>(executors.size());
    request.rank = rank;
    request.root = root;
    auto made = generate(algorithm, request);
    EXPECT_TRUE(made.isOk()) << made.status().message();
    CudaCall call;
    call.schedule = std::make_shared<const Schedule>(std::move(made).value());
    call.shape.collective = collective;
    call.shape.ranks = request.ranks;
    call.shape.root = call.schedule->root;
    call.shape.parts = call.schedule->parts;
    call.shape.count = count;
    call.shape.elementBytes = 4;
    call.shape.channels = channels;
    return call;
  }

  CudaCall message(int rank, int from, int to, size_t bytes, int channels = 1) {
    CudaCall call;
    call.schedule =
        std::make_shared<const Schedule>(sendRecv(static_cast<int32_t>(executors.size()), rank, from, to));
    call.shape.collective = Collective::sendRecv;
    call.shape.ranks = static_cast<int32_t>(executors.size());
    call.shape.root = from;
    call.shape.count = bytes;
    call.shape.channels = channels;
    return call;
  }

  test::FakeDriver driver;  // goes last
  std::vector<std::unique_ptr<CudaExecutor>> executors;
};

class LaunchRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(OneToFive, LaunchRanks, testing::Range(1, 6));

TEST_P(LaunchRanks, EveryScheduleIsLaunchedWithMemoryThatExists) {
  const int ranks = GetParam();
  FakeTeam team(ranks);
  size_t wanted = 0;
  for (const Algorithm& algorithm : algorithms()) {
    if (!algorithm.inter.empty()) continue;
    for (const Collective collective : algorithm.collectives) {
      if (!algorithm.implements(collective, ranks)) continue;
      for (const Protocol protocol : {Protocol::simple, Protocol::ll, Protocol::ll128}) {
        for (int rank = 0; rank < ranks; ++rank) {
          CudaCall call = team.call(algorithm.name, rank, 3000, 3, collective, ranks - 1);
          call.protocol = protocol;
          auto facts = team.executors[static_cast<size_t>(rank)]->enqueue(call, streamOf(16));
          ASSERT_TRUE(facts.isOk()) << facts.status().message();
          EXPECT_EQ(facts->blocks, 3 * call.schedule->lanes.size());
          wanted += facts->blocks != 0 ? 1 : 0;
          if (HasFailure()) return;
        }
      }
    }
  }
  EXPECT_EQ(team.driver.launches.size(), wanted);
}

TEST(Launch, SlicesFitTheSlotsOfTheProtocol) {
  FakeTeam team(4);
  struct Case {
    const char* algorithm;
    Protocol protocol;
    size_t slice;
  };
  // ring: a segment a message; pat's last round carries two
  for (const Case& c :
       {Case{"ring", Protocol::simple, 4096}, Case{"ring", Protocol::ll, 512 * 8},
        Case{"ring", Protocol::ll128, 32 * 120 / 64 * 64}, Case{"pat", Protocol::simple, 2048},
        Case{"pat", Protocol::ll, 2048}, Case{"pat", Protocol::ll128, 16 * 120 / 64 * 64}}) {
    CudaCall call = team.call(c.algorithm, 1, 10000, 1, Collective::allGather);
    call.protocol = c.protocol;
    auto facts = team.executors[1]->enqueue(call, nullptr);
    ASSERT_TRUE(facts.isOk()) << facts.status().message();
    EXPECT_EQ(facts->sliceBytes, c.slice) << c.algorithm;
    EXPECT_EQ(facts->protocol, c.protocol);
    const device::Call& device = team.driver.launches.back().calls[0];
    EXPECT_EQ(device.sliceElements, c.slice);  // of the kernel of bytes
    EXPECT_EQ(device.count, 40000u);
    EXPECT_EQ(device.slices, (40000 + c.slice - 1) / c.slice);
  }
}

TEST(Launch, WhatReducesUsesTheKernelOfItsTypeAndItsOperator) {
  FakeTeam team(2);
  CudaCall call = team.call("ring", 0, 100);
  call.shape.elementBytes = 2;
  call.reduction.type = ncclBfloat16;
  call.reduction.op = Reduction::max;
  call.reduction.hasScale = true;
  call.reduction.scale = 0.25;
  ASSERT_TRUE(team.executors[0]->enqueue(call, nullptr).isOk());
  const auto& launched = team.driver.launches.back();
  EXPECT_EQ(launched.launch.type, ncclBfloat16);
  EXPECT_EQ(launched.calls[0].op, device::Op::max);
  EXPECT_EQ(launched.calls[0].hasScale, 1);
  EXPECT_EQ(launched.calls[0].scale, std::bit_cast<uint64_t>(0.25));
  EXPECT_EQ(launched.calls[0].count, 100u);

  call.reduction = {Reduction::sum, ncclInt32, true, 1.0, 77, 3};
  call.shape.elementBytes = 4;
  ASSERT_TRUE(team.executors[0]->enqueue(call, nullptr).isOk());
  EXPECT_EQ(team.driver.launches.back().calls[0].scale, 77u);
  EXPECT_EQ(team.driver.launches.back().calls[0].divisor, 3u);

  const int scalar = 5;
  call.reduction.hasScale = false;
  call.scalar = &scalar;
  ASSERT_TRUE(team.executors[0]->enqueue(call, nullptr).isOk());
  EXPECT_EQ(team.driver.launches.back().calls[0].scalar, &scalar);
  EXPECT_EQ(team.driver.launches.back().calls[0].hasScale, 1);

  call.shape.elementBytes = 8;
  EXPECT_THAT(team.executors[0]->enqueue(call, nullptr).status().message(),
              HasSubstr("elements of 8 bytes where the type has 4"));
}

TEST(Launch, GpusGetMoreThreadsForLongCallsThanForShortOnes) {
  FakeTeam team(2);
  auto& executor = *team.executors[0];
  EXPECT_EQ(executor.enqueue(team.call("ring", 0, 16), nullptr)->threads, 256u);
  EXPECT_EQ(executor.enqueue(team.call("ring", 0, 1 << 20), nullptr)->threads, 512u);
  team.driver.isGpu = false;
  EXPECT_EQ(executor.enqueue(team.call("ring", 0, 16), nullptr)->threads, 32u);
  EXPECT_EQ(executor.enqueue(team.call("ring", 0, 1 << 20), nullptr)->threads, 64u);
}

TEST(Launch, ProtocolsThatAreImpossibleBecomeSimple) {
  FakeTeam team(4);
  auto& executor = *team.executors[2];
  for (const char* algorithm : {"oneshot", "twoshot", "direct"}) {  // no messages
    CudaCall call = team.call(algorithm, 2, 100);
    call.protocol = Protocol::ll;
    EXPECT_EQ(executor.enqueue(call, nullptr)->protocol, Protocol::simple) << algorithm;
    EXPECT_TRUE(executor.supports(*call.schedule, Protocol::ll, 1).isOk());
  }
  Schedule forwards;
  forwards.name = "forwards";
  forwards.collective = Collective::broadcast;
  forwards.ranks = 4;
  forwards.rank = 2;
  forwards.lanes.emplace_back().recvSend(1, 3);
  CudaCall call = team.call("ring", 2, 100, 1, Collective::broadcast);
  call.schedule = std::make_shared<const Schedule>(forwards);
  call.shape.parts = 1;
  call.protocol = Protocol::ll128;
  EXPECT_EQ(executor.enqueue(call, nullptr)->protocol, Protocol::simple);
  EXPECT_THAT(executor.supports(forwards, Protocol::ll128, 1).message(),
              HasSubstr("schedule forwards cannot run under LL128: it forwards messages"));
  EXPECT_TRUE(executor.supports(forwards, Protocol::simple, 1).isOk());
}

TEST(Launch, MessagesBetweenHostsThatOrderPeersBuffersNeedSimple) {
  FakeTeam team(4);
  ScheduleRequest request;
  request.ranks = 4;
  request.rank = 1;
  request.hosts = consecutiveHosts({2, 2});
  request.mapped = true;
  const Schedule schedule = generate("hierarchical", request).value();
  EXPECT_THAT(team.executors[1]->supports(schedule, Protocol::ll, 1).message(),
              HasSubstr("its messages order accesses to peers' memory"));
  EXPECT_TRUE(team.executors[1]->supports(schedule, Protocol::simple, 1).isOk());
}

// ---- order

TEST(LaunchOrder, AnotherStreamWaitsForTheCallBeforeAndTheSameOneDoesNot) {
  FakeTeam team(2);
  const CudaCall call = team.call("ring", 0, 100);
  for (const uintptr_t stream : {16, 16, 32, 32, 16})
    ASSERT_TRUE(team.executors[0]->enqueue(call, streamOf(stream)).isOk());
  EXPECT_THAT(team.driver.order,
              ElementsAre("launch 16", "record 16", "launch 16", "record 16", "wait 32", "launch 32",
                          "record 32", "launch 32", "record 32", "wait 16", "launch 16", "record 16"));
}

TEST(LaunchOrder, TheStreamOfEachThreadIsAnotherOneEachTime) {
  FakeTeam team(2);
  const CudaCall call = team.call("ring", 0, 100);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(team.executors[0]->enqueue(call, streamOf(2)).isOk());
  EXPECT_THAT(team.driver.order, ElementsAre("launch 2", "record 2", "wait 2", "launch 2", "record 2"));
}

TEST(LaunchOrder, AGraphHasTheEventsThatKeepItsLaunchesInOrder) {
  FakeTeam team(2);
  CudaCall call = team.call("ring", 0, 100, 1, Collective::allGather);
  auto sizes = std::make_shared<BlockSizes>();
  sizes->counts = {3, 5};
  sizes->offsets = {0, 3};
  call.shape.blocks = sizes;
  ASSERT_TRUE(team.executors[0]->enqueue(call, streamOf(16)).isOk());
  team.driver.order.clear();
  team.driver.captures[streamOf(32)] = 7;
  ASSERT_TRUE(team.executors[0]->enqueue(call, streamOf(32)).isOk());
  EXPECT_THAT(team.driver.order, ElementsAre("wait 32", "launch 32", "record 32"));
  // From then on nobody knows which stream the call before was on.
  team.driver.order.clear();
  ASSERT_TRUE(team.executors[0]->enqueue(call, streamOf(16)).isOk());
  ASSERT_TRUE(team.executors[0]->enqueue(call, streamOf(16)).isOk());
  EXPECT_THAT(team.driver.order, testing::Contains("wait 16").Times(2));
}

TEST(LaunchOrder, IsIdleOnceTheLastCallHasEnded) {
  FakeTeam team(2);
  auto& executor = *team.executors[0];
  team.driver.allUnfinished = true;
  EXPECT_TRUE(executor.isIdle().value());  // nothing was enqueued
  ASSERT_TRUE(executor.enqueue(team.call("ring", 0, 100), nullptr).isOk());
  EXPECT_FALSE(executor.isIdle().value());
  team.driver.allUnfinished = false;
  EXPECT_TRUE(executor.isIdle().value());
}

// ---- memory

TEST(LaunchMemory, ALongArgumentIsWrittenAgainOnceItsLaunchHasEndedAndNeverInAGraph) {
  FakeTeam team(3);
  auto& executor = *team.executors[0];
  const auto sizesOf = [&](size_t first) {
    auto sizes = std::make_shared<BlockSizes>();
    sizes->counts = {first, 5, 7};
    sizes->offsets = {0, 100, 200};
    CudaCall call = team.call("ring", 0, 0, 1, Collective::allGather);
    call.shape.blocks = sizes;
    return call;
  };
  const auto memoryOf = [&](size_t first, uintptr_t stream) {
    EXPECT_TRUE(executor.enqueue(sizesOf(first), streamOf(stream)).isOk());
    const device::Call& call = team.driver.launches.back().calls[0];
    EXPECT_EQ(call.blockCounts[0], 4 * first);  // bytes
    EXPECT_EQ(call.blockCounts[2], 28u);
    EXPECT_EQ(call.blockOffsets[1], 400u);
    return call.blockCounts;
  };
  const auto* first = memoryOf(1, 16);
  EXPECT_EQ(memoryOf(2, 16), first);
  team.driver.allUnfinished = true;
  const auto* second = memoryOf(3, 16);
  EXPECT_NE(second, first);
  EXPECT_EQ(first[0], 8u);  // a kernel may still read it
  team.driver.captures[streamOf(32)] = 1;
  const auto* captured = memoryOf(4, 32);
  team.driver.allUnfinished = false;
  for (int i = 0; i < 4; ++i) EXPECT_NE(memoryOf(5, 16), captured);
  EXPECT_EQ(captured[0], 16u);
}

TEST(LaunchMemory, AFailedLaunchGivesItsPieceBack) {
  FakeTeam team(2);
  CudaCall call = team.call("ring", 0, 0, 1, Collective::allGather);
  auto sizes = std::make_shared<BlockSizes>();
  sizes->counts = {3, 5};
  sizes->offsets = {0, 3};
  call.shape.blocks = sizes;
  ASSERT_TRUE(team.executors[0]->enqueue(call, nullptr).isOk());
  const size_t before = team.driver.allocations();
  for (int i = 0; i < 3; ++i) {
    team.driver.nextLaunch = internalError("no luck");
    EXPECT_THAT(team.executors[0]->enqueue(call, nullptr).status().message(), HasSubstr("no luck"));
  }
  EXPECT_TRUE(team.executors[0]->enqueue(call, nullptr).isOk());
  EXPECT_EQ(team.driver.allocations(), before);
  EXPECT_EQ(team.executors[0]->calls(), 2u);
}

TEST(LaunchMemory, AKnownScheduleIsUploadedOnceAndACallWithItCopiesNothing) {
  FakeTeam team(2);
  const CudaCall call = team.call("ring", 0, 100, 2);
  ASSERT_TRUE(team.executors[0]->enqueue(call, nullptr).isOk());
  const size_t copies = team.driver.copies;
  const size_t memory = team.driver.allocations();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(team.executors[0]->enqueue(call, nullptr).isOk());
  EXPECT_EQ(team.executors[0]->programs(), 1u);
  EXPECT_EQ(team.driver.copies, copies);
  EXPECT_EQ(team.driver.allocations(), memory);
}

TEST(LaunchMemory, ManySchedulesReplaceEachOtherOnlyWhenNoKernelCanReadThem) {
  test::FakeDriver driver;
  CudaMemory memory(driver, 0);
  CudaPrograms programs(memory);
  bool idle = false;
  const auto isIdle = [&] { return idle; };
  const auto add = [&] {
    return programs.get(std::make_shared<const Schedule>(
                            generate("ring", {.collective = Collective::allReduce, .ranks = 4}).value()),
                        isIdle);
  };
  const auto kept = std::make_shared<const Schedule>(
      generate("tree", {.collective = Collective::allReduce, .ranks = 4}).value());
  const CudaProgram* const keptProgram = programs.get(kept, isIdle).value();
  CudaProgram* const captured = add().value();
  captured->isCaptured = true;
  for (size_t i = 0; i < CudaPrograms::kMost; ++i) ASSERT_TRUE(add().isOk());
  EXPECT_EQ(programs.size(), CudaPrograms::kMost + 2);
  const size_t chunks = driver.allocations();
  idle = true;
  for (size_t i = 0; i < 3 * CudaPrograms::kMost; ++i) {
    ASSERT_TRUE(add().isOk());
    ASSERT_LE(programs.size(), CudaPrograms::kMost + 3);
  }
  EXPECT_LE(driver.allocations(), 2 * chunks);
  EXPECT_EQ(programs.get(kept, isIdle).value(), keptProgram);
  EXPECT_TRUE(captured->isCaptured);
  EXPECT_EQ(programs.get(captured->schedule, isIdle).value(), captured);
}

TEST(LaunchMemory, EverythingIsFreedAtTheEnd) {
  test::FakeDriver* driver = nullptr;
  auto team = std::make_unique<FakeTeam>(3);
  driver = &team->driver;
  for (int r = 0; r < 3; ++r)
    ASSERT_TRUE(team->executors[static_cast<size_t>(r)]->enqueue(team->call("tree", r, 100), nullptr).isOk());
  EXPECT_GT(driver->allocations(), 0u);
  team->executors.clear();
  EXPECT_EQ(driver->allocations(), 0u);
}

TEST(LaunchMemory, AKernelThatDoesNotEndKeepsItsMemory) {
  FakeTeam team(1);
  ASSERT_TRUE(
      team.executors[0]->enqueue(team.call("ring", 0, 100, 1, Collective::allReduce), nullptr).isOk());
  if (team.driver.launches.empty()) GTEST_SKIP() << "one rank needs no kernel";
  const device::Comm* comm = team.driver.launches.back().arguments.comm;
  const uint32_t* abortFlag = comm->abort;
  team.driver.allUnfinished = true;
  team.executors.clear();
  ASSERT_TRUE(team.driver.holds(comm, sizeof(*comm)));
  EXPECT_EQ(*abortFlag, 1u);
}

// ---- limits

TEST(LaunchLimits, MoreBlocksThanRunAtTheSameTimeAreRefused) {
  FakeTeam team(4, 2);  // two ranks a device
  team.driver.isGpu = false;
  team.driver.residentOf = 15;
  auto& executor = *team.executors[1];
  const CudaCall tree = team.call("tree", 1, 100, 2);  // four lanes
  EXPECT_TRUE(executor.supports(*tree.schedule, Protocol::simple, 1).isOk());
  const Status refused = executor.supports(*tree.schedule, Protocol::simple, 2);
  EXPECT_THAT(refused.message(), HasSubstr("schedule tree on 2 channels: 8 blocks must run at the same time, "
                                           "and device 1 runs 7 for each of its 2 ranks"));
  EXPECT_THAT(executor.enqueue(tree, nullptr).status().message(), HasSubstr("8 blocks must run"));
  EXPECT_THAT(team.driver.launches, IsEmpty());
}

TEST(LaunchLimits, FewerThreadsAreUsedWhereMoreDoNotFit) {
  FakeTeam team(2);
  team.driver.fewestThreads = 256;
  team.driver.residentOf = 4;
  EXPECT_EQ(team.executors[0]->enqueue(team.call("ring", 0, 1 << 20, 2), nullptr)->threads, 512u);
  EXPECT_EQ(team.executors[0]->enqueue(team.call("ring", 0, 1 << 20, 4), nullptr)->threads, 256u);
}

TEST(LaunchLimits, ChannelsRanksAndShapesMustBeThoseOfTheCommunicator) {
  FakeTeam team(2);
  auto& executor = *team.executors[0];
  EXPECT_THAT(executor.enqueue(team.call("ring", 0, 100, 5), nullptr).status().message(),
              HasSubstr("schedule ring on 5 channels: there are 4"));
  EXPECT_THAT(executor.enqueue(team.call("ring", 1, 100), nullptr).status().message(),
              HasSubstr("is made for rank 1 of 2, this is rank 0 of 2"));
  CudaCall call = team.call("ring", 0, 100);
  call.shape.root = 1;
  EXPECT_THAT(executor.enqueue(call, nullptr).status().message(),
              HasSubstr("not made for this call's shape"));
  call = team.call("ring", 0, 100);
  call.schedule = nullptr;
  EXPECT_FALSE(executor.enqueue(call, nullptr).isOk());
}

TEST(LaunchLimits, AStagedGroupHasNoDirectAccessToUsersBuffers) {
  test::FakeDriver driver;
  driver.reaches = false;
  std::shared_ptr<DeviceGroup> group;
  const uint64_t key = newGroupKey();
  std::thread other([&] {
    EXPECT_TRUE(DeviceGroup::join(driver, key, 1, 2, 1, smallGroup(2), nullptr,
                                  Deadline::after(std::chrono::seconds(20)))
                    .isOk());
  });
  group = DeviceGroup::join(driver, key, 0, 2, 0, smallGroup(2), nullptr,
                            Deadline::after(std::chrono::seconds(20)))
              .value();
  other.join();
  ASSERT_TRUE(group->isStaged());
  auto executor = CudaExecutor::create(driver, group, 0).value();
  const auto schedule = [](const char* name) {
    return generate(name, {.collective = Collective::allReduce, .ranks = 2}).value();
  };
  EXPECT_THAT(executor->supports(schedule("direct"), Protocol::simple, 1).message(),
              HasSubstr("schedule direct works in peers' buffers, which rank 0 (device 0) and rank 1"));
  EXPECT_TRUE(executor->supports(schedule("oneshot"), Protocol::simple, 1).isOk());
  EXPECT_TRUE(executor->supports(schedule("ring"), Protocol::ll, 1).isOk());
  executor.reset();
  group.reset();
}

TEST(LaunchLimits, NothingIsEnqueuedAfterAnAbortOrAReport) {
  FakeTeam team(2);
  const CudaCall call = team.call("ring", 0, 100);
  EXPECT_FALSE(team.executors[0]->aborted());
  ASSERT_TRUE(team.executors[0]->enqueue(call, nullptr).isOk());
  device::Report& report = *team.driver.launches.back().arguments.comm->report;
  EXPECT_TRUE(team.executors[0]->reportedError().isOk());
  report.peer = 1;
  report.got = 4096;
  report.expected = 8192;
  report.error = static_cast<uint32_t>(device::ErrorCode::wrongSize);
  EXPECT_THAT(team.executors[0]->reportedError().message(),
              HasSubstr("rank 0: rank 1 sent 4096 bytes where 8192 were expected: the ranks' calls do not "
                        "match"));
  EXPECT_EQ(team.executors[0]->enqueue(call, nullptr).status().code(), ncclInvalidUsage);
  team.executors[1]->abort();
  EXPECT_TRUE(team.executors[1]->aborted());
  EXPECT_THAT(team.executors[1]->enqueue(team.call("ring", 1, 100), nullptr).status().message(),
              HasSubstr("rank 1: the communicator was aborted"));
}

TEST(LaunchPosition, SaysWhereBlocksWait) {
  FakeTeam team(2);
  ASSERT_TRUE(team.executors[0]->enqueue(team.call("ring", 0, 100), nullptr).isOk());
  EXPECT_EQ(team.executors[0]->position(), "");
  device::Report& report = *team.driver.launches.back().arguments.comm->report;
  const auto position = [](device::WaitFor what, int32_t peer) {
    device::Position p;
    p.waits = static_cast<uint32_t>(what);
    p.peer = peer;
    p.lane = 1;
    p.slice = 3;
    p.step = 2;
    p.flag = 4;
    return p;
  };
  report.positions[0] = position(device::WaitFor::data, 5);
  report.positions[7] = position(device::WaitFor::room, 6);
  report.positions[9] = position(device::WaitFor::signal, 7);
  EXPECT_EQ(team.executors[0]->position(),
            "channel 0 lane 1 slice 3 step 2 waits for data from rank 5, "
            "channel 0 lane 1 slice 3 step 2 waits for room at rank 6, "
            "channel 0 lane 1 slice 3 step 2 waits for flag 4 of rank 7");
  EXPECT_EQ(team.executors[0]->positions().size(), 3u);
}

// ---- messages

TEST(LaunchMessages, ThoseOnOneConnectionFollowEachOtherAndOthersRunBeside) {
  FakeTeam team(3);
  std::vector<CudaCall> messages;
  for (const size_t bytes : {100, 200, 300}) messages.push_back(team.message(0, 0, 1, bytes));
  messages.push_back(team.message(0, 0, 2, 400));
  messages.push_back(team.message(0, 1, 0, 500));
  messages.push_back(team.message(0, 0, 0, 600));
  messages.push_back(team.message(0, 0, 2, 700));
  auto facts = team.executors[0]->enqueueMessages(messages, nullptr);
  ASSERT_TRUE(facts.isOk()) << facts.status().message();
  EXPECT_EQ(facts->blocks, 4u);  // to 1, to 2, from 1, to itself
  const auto& launched = team.driver.launches.back();
  std::vector<std::vector<uint64_t>> chains;
  for (uint32_t head = 0; head < launched.arguments.heads; ++head) {
    chains.emplace_back();
    for (uint32_t c = head;; c = launched.calls[c].next) {
      chains.back().push_back(launched.calls[c].count);
      if (launched.calls[c].next == 0) break;
    }
  }
  EXPECT_THAT(chains, testing::UnorderedElementsAre(ElementsAre(100u, 200u, 300u), ElementsAre(400u, 700u),
                                                    ElementsAre(500u), ElementsAre(600u)));
  EXPECT_EQ(team.executors[0]->calls(), 7u);
}

TEST(LaunchMessages, ManyAreReadFromTheDevicesMemory) {
  FakeTeam team(2);
  std::vector<CudaCall> messages;
  for (size_t i = 0; i < 20; ++i) messages.push_back(team.message(0, 0, 1, i));
  ASSERT_TRUE(team.executors[0]->enqueueMessages(messages, nullptr).isOk());
  const auto& launched = team.driver.launches.back();
  EXPECT_NE(launched.arguments.moreCalls, nullptr);
  EXPECT_EQ(launched.arguments.calls, 20u);
  EXPECT_EQ(launched.launch.blocks, 1u);
  ASSERT_TRUE(team.executors[0]->enqueueMessages(std::span(messages).first(8), nullptr).isOk());
  EXPECT_EQ(team.driver.launches.back().arguments.moreCalls, nullptr);
  ASSERT_TRUE(team.executors[0]->enqueueMessages({}, nullptr).isOk());
  EXPECT_EQ(team.driver.launches.size(), 2u);
}

TEST(LaunchMessages, ShareBlocksWhereConnectionsOutnumberThem) {
  FakeTeam team(5);
  team.driver.isGpu = false;
  team.driver.residentOf = 3;
  std::vector<CudaCall> messages;
  for (int peer = 0; peer < 5; ++peer) {
    messages.push_back(team.message(2, 2, peer, 100));
    if (peer != 2) messages.push_back(team.message(2, peer, 2, 100));
  }
  auto facts = team.executors[2]->enqueueMessages(messages, nullptr);
  ASSERT_TRUE(facts.isOk()) << facts.status().message();
  EXPECT_LE(facts->blocks, 3u);
  team.driver.residentOf = 1;
  FakeTeam tight(2);
  tight.driver.isGpu = false;
  tight.driver.residentOf = 1;
  EXPECT_THAT(tight.executors[0]
                  ->enqueueMessages(
                      std::vector<CudaCall>{tight.message(0, 0, 1, 10), tight.message(0, 1, 0, 10)}, nullptr)
                  .status()
                  .message(),
              HasSubstr("too few for messages in both directions"));
}

TEST(LaunchMessages, OnlyMessagesAreMessages) {
  FakeTeam team(3);
  EXPECT_THAT(team.executors[0]
                  ->enqueueMessages(std::vector<CudaCall>{team.call("tree", 0, 100)}, nullptr)
                  .status()
                  .message(),
              HasSubstr("schedule tree is no message"));
  CudaCall other = team.message(0, 0, 2, 10);
  other.protocol = Protocol::ll;
  EXPECT_THAT(team.executors[0]
                  ->enqueueMessages(std::vector<CudaCall>{team.message(0, 0, 1, 10), other}, nullptr)
                  .status()
                  .message(),
              HasSubstr("messages of one launch under Simple and LL"));
}

}  // namespace
}  // namespace tutti
