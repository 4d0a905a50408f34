// Ranks of one process with an executor each, on virtual GPUs.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "algorithms/registry.h"
#include "algorithms/send_recv.h"
#include "cuda_runtime_api.h"
#include "executor/call_data.h"
#include "executor/cuda/cuda_executor.h"
#include "support/scale.h"

namespace tutti::test {

struct DeviceTeamOptions {
  int ranks = 2;
  int devices = 9;  // as many as main.cc asks for
  int channels = 3;
  size_t slotBytes = 1024;
  size_t scratchBytes = 9 * 1024;
  uint32_t linesLL = 128;
  uint32_t linesLL128 = 9;
  bool staged = false;
};

class DeviceTeam {
 public:
  static constexpr int kStreams = 2;  // of each rank
  using Options = DeviceTeamOptions;

  explicit DeviceTeam(const Options& options) : driver_(*virtualDriver().value()) {
    const auto ranks = static_cast<size_t>(options.ranks);
    std::vector<std::shared_ptr<DeviceGroup>> groups(ranks);
    DeviceGroupOptions group;
    group.layout = {static_cast<uint32_t>(options.ranks), static_cast<uint32_t>(options.channels),
                    options.scratchBytes};
    group.slotBytes = options.slotBytes;
    group.linesOfSlotLL = options.linesLL;
    group.linesOfSlotLL128 = options.linesLL128;
    group.mayReach = [&](int, int, std::string* why) {
      *why = "the test says so";
      return !options.staged;
    };
    static std::atomic<uint64_t> lastKey{0};
    const uint64_t key = ++lastKey;
    std::vector<std::thread> threads;
    for (int r = 0; r < options.ranks; ++r)
      threads.emplace_back([&, r] {
        auto joined = DeviceGroup::join(driver_, key, r, options.ranks, r % options.devices, group, nullptr,
                                        Deadline::after(std::chrono::seconds(20)));
        ASSERT_TRUE(joined.isOk()) << joined.status().message();
        groups[static_cast<size_t>(r)] = *joined;
      });
    for (auto& thread : threads) thread.join();
    schedules_.resize(ranks);
    for (int r = 0; r < options.ranks; ++r) {
      auto made = CudaExecutor::create(driver_, groups[static_cast<size_t>(r)], r);
      EXPECT_TRUE(made.isOk()) << made.status().message();
      executors_.push_back(std::move(made).value());
      devices_.push_back(r % options.devices);
      for (int s = 0; s < kStreams; ++s) {
        cudaStream_t stream = nullptr;
        EXPECT_EQ(cudaSetDevice(devices_.back()), cudaSuccess);
        EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
        streams_.push_back(stream);
      }
    }
    group_ = groups[0];
  }

  ~DeviceTeam() {
    synchronize();
    for (cudaStream_t stream : streams_) EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    executors_.clear();
  }
  DeviceTeam(const DeviceTeam&) = delete;
  DeviceTeam& operator=(const DeviceTeam&) = delete;

  int ranks() const { return static_cast<int>(executors_.size()); }
  Driver& driver() { return driver_; }
  DeviceGroup& group() { return *group_; }
  CudaExecutor& executor(int rank) { return *executors_[static_cast<size_t>(rank)]; }
  cudaStream_t stream(int rank, int number = 0) const {
    return streams_[static_cast<size_t>(rank * kStreams + number)];
  }
  int device(int rank) const { return devices_[static_cast<size_t>(rank)]; }

  /// Generated once for each algorithm, collective and root, as core does.
  std::shared_ptr<const Schedule> schedule(const std::string& algorithm, Collective collective, int root,
                                           int rank) {
    auto& known = schedules_[static_cast<size_t>(rank)][{algorithm, collective, root}];
    if (known == nullptr) {
      ScheduleRequest request;
      request.collective = collective;
      request.ranks = ranks();
      request.rank = rank;
      request.root = root;
      auto made = generate(algorithm, request);
      EXPECT_TRUE(made.isOk()) << made.status().message();
      known = std::make_shared<const Schedule>(std::move(made).value());
    }
    return known;
  }
  /// Makes schedules of all ranks known under a name.
  void use(const std::string& name, const std::vector<Schedule>& schedules) {
    for (size_t r = 0; r < schedules.size(); ++r)
      schedules_[r][{name, schedules[r].collective, schedules[r].root}] =
          std::make_shared<const Schedule>(schedules[r]);
  }

  CudaCall call(const CallBuffers& buffers, int rank, Protocol protocol) {
    const Call& what = buffers.call();
    CudaCall call;
    call.schedule = schedule(what.algorithm, what.collective, what.root, rank);
    call.shape.collective = what.collective;
    call.shape.ranks = ranks();
    call.shape.root = call.schedule->root;
    call.shape.parts = call.schedule->parts;
    call.shape.count = what.count;
    call.shape.elementBytes = buffers.elementBytes();
    call.shape.channels = what.channels;
    call.reduction = what.reduction;
    call.protocol = protocol;
    call.input = buffers.input(rank);
    call.output = buffers.output(rank);
    return call;
  }

  /// On all ranks; the facts are those of the last one.
  CudaLaunchFacts enqueue(const CallBuffers& buffers, Protocol protocol, int streamNumber = 0) {
    CudaLaunchFacts last;
    for (int r = 0; r < ranks(); ++r) {
      auto facts = executor(r).enqueue(call(buffers, r, protocol), stream(r, streamNumber));
      EXPECT_TRUE(facts.isOk()) << buffers.call().text() << ": " << facts.status().message();
      if (facts.isOk() && facts->blocks != 0) last = *facts;
    }
    return last;
  }

  CudaCall message(int rank, int from, int to, std::byte* buffer, size_t bytes, int channels = 1,
                   Protocol protocol = Protocol::simple) {
    const std::string name = "message " + std::to_string(from) + " " + std::to_string(to);
    auto& known = schedules_[static_cast<size_t>(rank)][{name, Collective::sendRecv, from}];
    if (known == nullptr) known = std::make_shared<const Schedule>(sendRecv(ranks(), rank, from, to));
    CudaCall call;
    call.schedule = known;
    call.shape.collective = Collective::sendRecv;
    call.shape.ranks = ranks();
    call.shape.root = from;
    call.shape.count = bytes;
    call.shape.channels = channels;
    call.protocol = protocol;
    call.input = buffer;
    call.output = buffer;
    return call;
  }

  bool isIdle() {
    for (int r = 0; r < ranks(); ++r) {
      for (int s = 0; s < kStreams; ++s) {
        const auto idle = driver_.isIdle(device(r), stream(r, s));
        EXPECT_TRUE(idle.isOk()) << idle.status().message();
        if (idle.isOk() && !*idle) return false;
      }
    }
    return true;
  }
  bool isIdleWithin(std::chrono::milliseconds time) {
    const auto deadline = std::chrono::steady_clock::now() + time;
    while (!isIdle()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return true;
  }

  /// Until all streams are idle. What is stuck is told, and aborted.
  void synchronize() {
    if (isIdleWithin(std::chrono::seconds(scaled(30, 90)))) return;
    for (int r = 0; r < ranks(); ++r) {
      ADD_FAILURE() << "rank " << r << " is stuck: " << executor(r).position() << " "
                    << executor(r).reportedError().message();
    }
    ADD_FAILURE() << driver_.kernelReport();
    for (int r = 0; r < ranks(); ++r) executor(r).abort();
    isIdleWithin(std::chrono::seconds(10));
  }

 private:
  using Key = std::tuple<std::string, Collective, int>;
  Driver& driver_;
  std::shared_ptr<DeviceGroup> group_;
  std::vector<std::unique_ptr<CudaExecutor>> executors_;
  std::vector<int> devices_;
  std::vector<cudaStream_t> streams_;
  std::vector<std::map<Key, std::shared_ptr<const Schedule>>> schedules_;  // by rank
};

constexpr Protocol kProtocols[] = {Protocol::simple, Protocol::ll, Protocol::ll128};

}  // namespace tutti::test
