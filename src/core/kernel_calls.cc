#include "core/kernel_calls.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "base/datatype.h"
#include "base/fnv.h"
#include "base/log.h"
#include "base/params.h"
#include "core/communicator.h"
#include "core/operation_run.h"
#include "core/self_messages.h"
#include "device/kernel_table.h"

namespace tutti {
namespace {

// Data that a slot of the line protocols carries. LL is for what fits a few slots; LL128 for what a slot of
// Simple is too coarse for.
constexpr uint32_t kLinesLL = 16 * 1024 / device::kDataLL;
constexpr uint32_t kLinesLL128 = 512;
constexpr uint32_t kUsualLinks = 64;

/// Blocks that surely run at the same time, whichever kernel it is.
Result<uint32_t> residentBlocks(Driver& driver, int device) {
  uint32_t least = ~uint32_t{0};
  for (int type = 0; type < ncclNumTypes; ++type)
    for (const auto protocol : {device::Protocol::simple, device::Protocol::ll, device::Protocol::ll128}) {
      TUTTI_ASSIGN(const uint32_t blocks,
                   driver.residentBlocks(device, static_cast<ncclDataType_t>(type), protocol, kMostThreads,
                                         sharedBytesFor(kUsualLinks)));
      least = std::min(least, blocks);
    }
  return least;
}

Status checkSharing(const Communicator& communicator, const DeviceGroup& group, const Driver& driver) {
  if (driver.isVirtual() || params().multiRankGpu()) return Status::ok();
  for (int rank = 0; rank < group.ranks(); ++rank)
    if (rank != communicator.rank() && group.device(rank) == communicator.device())
      return invalidUsage(
          "ranks {} and {} are both on device {}: set NCCL_MULTI_RANK_GPU_ENABLE=1 where that is meant",
          std::min(rank, communicator.rank()), std::max(rank, communicator.rank()), communicator.device());
  return Status::ok();
}

}  // namespace

KernelCalls::KernelCalls(Communicator& communicator, Driver& driver)
    : communicator_(communicator), driver_(driver), device_(communicator.device()) {}

KernelCalls::~KernelCalls() {
  executor_.reset();
  if (event_ != nullptr) driver_.destroyEvent(device_, event_).ignore();
}

void KernelCalls::giveUp(std::unique_ptr<KernelCalls> calls) {
  struct Given {
    std::mutex mutex;
    std::vector<std::unique_ptr<KernelCalls>> all;
  };
  static Given& given = *new Given;                 // never destroyed: kernels may run until the very end
  std::vector<std::unique_ptr<KernelCalls>> ended;  // freed after the lock is: that may wait for the device
  const std::lock_guard lock(given.mutex);
  if (calls != nullptr) given.all.push_back(std::move(calls));
  const auto rest = std::ranges::partition(given.all, [](const auto& one) {
    const auto idle = one->executor_->isIdle();
    return idle.isOk() && !*idle;
  });
  std::ranges::move(rest, std::back_inserter(ended));
  given.all.erase(rest.begin(), rest.end());
}

Result<std::unique_ptr<KernelCalls>> KernelCalls::create(Communicator& communicator, Driver& driver,
                                                         Deadline deadline) {
  giveUp(nullptr);
  std::unique_ptr<KernelCalls> made(new KernelCalls(communicator, driver));
  const int rank = communicator.rank();
  const EndpointOptions& endpoint = communicator.endpoint().options();
  DeviceGroupOptions options;
  options.layout = {.ranks = static_cast<uint32_t>(communicator.ranks()),
                    .channels = static_cast<uint32_t>(endpoint.channels),
                    .scratchHalfBytes = endpoint.scratchBytes};
  options.slotBytes = endpoint.slotBytes;
  options.linesOfSlotLL = kLinesLL;
  options.linesOfSlotLL128 = kLinesLL128;
  options.mayReach = [&communicator](int a, int b, std::string* why) {
    return communicator.mayReachDevice(a, b, why);
  };
  TUTTI_ASSIGN(made->group_,
               DeviceGroup::join(driver, communicator.session(), rank, communicator.ranks(),
                                 communicator.device(), options, &communicator.faults(), deadline));
  TUTTI_TRY(checkSharing(communicator, *made->group_, driver));
  TUTTI_ASSIGN(made->executor_, CudaExecutor::create(driver, made->group_, rank));
  TUTTI_ASSIGN(made->event_, driver.createEvent(communicator.device()));
  TUTTI_ASSIGN(uint32_t blocks, residentBlocks(driver, communicator.device()));
  blocks /= static_cast<uint32_t>(std::max(1, made->group_->ranksOn(communicator.device())));
  // All ranks plan alike, so the smallest device counts.
  TUTTI_ASSIGN(const auto all, communicator.control().allGather(std::to_string(blocks), deadline));
  for (const std::string& one : all) blocks = std::min(blocks, static_cast<uint32_t>(std::stoul(one)));
  made->planning_.mostBlocks = blocks;
  made->planning_.machine = communicator.kernelMachine();
  if (made->group_->isStaged())
    logInfo(Subsystem::p2p, "rank {}: GPUs exchange data through pinned host memory: {}", rank,
            made->group_->stagedWhy());
  logInfo(Subsystem::init, "rank {}: kernels on {} run the calls; {} blocks at once, {}", rank,
          driver.isVirtual() ? "virtual GPUs" : "GPUs", blocks,
          made->group_->transportName(rank, (rank + 1) % communicator.ranks()));
  return made;
}

Status KernelCalls::checkStream(cudaStream_t stream) const {
  const int device = communicator_.device();
  const auto owner = driver_.streamDevice(stream, device);
  if (!owner.isOk())
    return invalidArgument("{} is not a stream, or was destroyed", static_cast<const void*>(stream));
  if (*owner == device) return Status::ok();
  return invalidUsage("stream {} is of device {}, but rank {}'s communicator is on device {}",
                      static_cast<const void*>(stream), *owner, communicator_.rank(), device);
}

Result<uint64_t> KernelCalls::captureOf(cudaStream_t stream) const {
  return driver_.captureOf(communicator_.device(), stream);
}

Status KernelCalls::enqueue(std::span<const Operation> operations, bool captured) {
  const auto collectives = static_cast<uint64_t>(std::ranges::count_if(
      operations, [](const Operation& one) { return one.kind == Operation::Kind::collective; }));
  bool begun = false;
  const Status status = statusOf([&] {
    const std::lock_guard lock(mutex_);
    TUTTI_TRY(communicator_.error());
    begun_ = false;
    captured_ = captured;
    Status enqueued = enqueueAll(
        operations, communicator_.monitor().progress.called(collectives, operations.size() - collectives));
    begun = begun_;
    return enqueued;
  });
  communicator_.monitor().arm();
  if (!status.isOk() && begun) communicator_.fail(status);
  return status;
}

void KernelCalls::note(const Operation& operation, uint64_t number, uint32_t messages) {
  const std::lock_guard lock(lastMutex_);
  last_ = {operation, number, messages};
}

Status KernelCalls::enqueueAll(std::span<const Operation> operations, uint64_t firstCollective) {
  const DeviceStream main = operations.front().stream;
  std::vector<DeviceStream> others;  // empty, and so without memory, but for groups on several streams
  for (const Operation& operation : operations)
    if (operation.stream != main && std::ranges::find(others, operation.stream) == others.end())
      others.push_back(operation.stream);
  for (const DeviceStream other : others) TUTTI_TRY(chain(other, main));
  messages_.clear();
  for (const Operation& operation : operations) {
    if (operation.kind == Operation::Kind::collective) {
      TUTTI_TRY(enqueueCollective(operation, firstCollective++, main));
    } else {
      messages_.push_back(operation);
    }
  }
  pairSelfMessages(communicator_.rank(), messages_);
  if (!messages_.empty()) TUTTI_TRY(enqueueMessages(messages_, main));
  for (const DeviceStream other : others) TUTTI_TRY(chain(main, other));
  return Status::ok();
}

Status KernelCalls::chain(DeviceStream from, DeviceStream to) {
  TUTTI_TRY(driver_.recordEvent(communicator_.device(), event_, from));
  return driver_.waitEvent(communicator_.device(), to, event_);
}

/// Addresses travel with the call, so nothing needs to be registered, with two exceptions. All ranks must
/// come to the same answer.
bool KernelCalls::mayUsePeerBuffers(const Operation& operation) {
  if (group_->isStaged()) return false;
  if (operation.blocks != nullptr) return false;  // peers may have theirs at other offsets
  if (operation.collective != Collective::allToAll) return true;
  // In place it would overwrite what peers have yet to read, and whether a rank calls in place is its own
  // business, unless the user promises that all have the same offsets.
  const size_t bytes = operation.count * sizeOf(operation.type) * static_cast<size_t>(communicator_.ranks());
  OneSided& windows = communicator_.oneSided();
  return operation.input != operation.output && windows.isSymmetric(operation.input, bytes) &&
         windows.isSymmetric(operation.output, bytes);
}

/// In peers' buffers where the plan gains by it.
Result<Plan> KernelCalls::planOf(const Operation& operation) {
  Planner& planner = communicator_.planner();
  bool zeroCopy = mayUsePeerBuffers(operation);
  if (zeroCopy) {
    TUTTI_ASSIGN(zeroCopy, planner.wantsZeroCopy(operation));
  }
  return planner.plan(operation, zeroCopy);
}

CudaCall KernelCalls::callOf(const Operation& operation, const Plan& plan) const {
  const Launch launch = makeLaunch(communicator_, operation, plan, 0);
  CudaCall call;
  call.schedule = launch.schedule;
  call.shape = launch.shape;
  call.reduction = launch.reduction;
  call.scalar = operation.reduction.residentScalar;
  call.protocol = plan.choice.protocol;
  call.input = launch.input;
  call.output = launch.output;
  return call;
}

Status KernelCalls::compare(const Operation& operation, const Plan& plan) {
  begun_ = true;
  if (captured_) {
    group_->stopComparing();
    return Status::ok();
  }
  Operation compared = operation;
  if (!isReduction(operation.collective)) {  // bytes are moved, whatever they are called
    compared.count *= sizeOf(operation.type);
    compared.type = ncclInt8;
  }
  const std::string how =
      fmt::format("{} {} on {} channel(s)", plan.schedule->name, name(plan.choice.protocol), plan.channels);
  const std::string text = fmt::format("{} by {}", describeFingerprint(fingerprint(compared)), how);
  return group_->compareCall(communicator_.rank(), ++compared_, fnv1a(text), text);
}

Status KernelCalls::enqueueCollective(const Operation& operation, uint64_t number, DeviceStream stream) {
  TUTTI_ASSIGN(const Plan plan, planOf(operation));
  TUTTI_TRY(compare(operation, plan));
  note(operation, number, 0);
  if (operation.count == 0 && operation.blocks == nullptr) return Status::ok();  // was called to be compared
  communicator_.planner().noteUsed(plan);
  TUTTI_ASSIGN(const CudaLaunchFacts facts, executor_->enqueue(callOf(operation, plan), stream));
  logTrace(Subsystem::coll, "rank {}: {} by {} {}: {} blocks of {} threads, slices of {} bytes",
           communicator_.rank(), name(operation.collective), plan.schedule->name, name(facts.protocol),
           facts.blocks, facts.threads, facts.sliceBytes);
  return Status::ok();
}

Status KernelCalls::enqueueMessages(std::span<const Operation> messages, DeviceStream stream) {
  calls_.clear();
  for (const Operation& message : messages) {
    TUTTI_TRY(checkSelfMessage(communicator_.rank(), message));
    TUTTI_ASSIGN(const Plan plan, communicator_.planner().planMessage(message));
    calls_.push_back(callOf(message, plan));
  }
  note(messages.front(), 0, static_cast<uint32_t>(messages.size()));
  begun_ = true;
  const auto launched = executor_->enqueueMessages(calls_, stream);
  calls_.clear();  // they hold schedules
  return launched.status();
}

bool KernelCalls::busy() const {
  if (executor_->aborted()) return false;
  const auto idle = executor_->isIdle();
  return idle.isOk() && !*idle;
}

Status KernelCalls::drain(Deadline deadline) const {
  for (;;) {
    const auto idle = executor_->isIdle();
    if (!idle.isOk()) return idle.status();
    if (*idle) return Status::ok();
    if (deadline.passed()) return systemError(ETIMEDOUT, "wait for the kernels that are still running");
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

Status KernelCalls::deviceError() const {
  TUTTI_TRY(executor_->reportedError());
  return executor_->aborted() ? Status::ok() : executor_->isIdle().status();
}

std::string KernelCalls::details() const {
  // All ranks of the process stand still together, and each of them would tell of all.
  constexpr uint64_t kPauseMs = 5000;
  static std::atomic<uint64_t> next{0};
  uint64_t expected = next.load(std::memory_order_relaxed);
  const uint64_t now = Progress::coarseMs();
  if (now < expected || !next.compare_exchange_strong(expected, now + kPauseMs, std::memory_order_relaxed))
    return {};
  const std::string report = driver_.kernelReport();
  return report.empty() ? report : "kernels: " + report;
}

void KernelCalls::observe(Progress& progress) {
  if (const Status error = deviceError(); !error.isOk()) communicator_.fail(error);
  const bool running = busy();
  if (!running) {
    if (std::exchange(shown_, false)) progress.end();
    return;
  }
  Last last;
  {
    const std::lock_guard lock(lastMutex_);
    last = last_;
  }
  if (!std::exchange(shown_, true) || last.number != std::exchange(shownNumber_, last.number))
    progress.begin(last.operation, last.number, last.messages);
  std::vector<device::Position> now = executor_->positions();
  const bool moves = now.empty() || now.size() != positions_.size() ||
                     !std::ranges::equal(now, positions_, [](const auto& a, const auto& b) {
                       return a.slice == b.slice && a.step == b.step && a.iteration == b.iteration &&
                              a.waits == b.waits && a.peer == b.peer;
                     });
  positions_ = std::move(now);
  if (moves) progress.moved();
  std::vector<WaitFor> waits;
  for (const device::Position& one : positions_) {
    const auto what = one.waits == static_cast<uint32_t>(device::WaitFor::data)   ? WaitFor::What::data
                      : one.waits == static_cast<uint32_t>(device::WaitFor::room) ? WaitFor::What::room
                                                                                  : WaitFor::What::signal;
    waits.push_back({.peer = one.peer, .what = what, .step = one.step, .slice = one.slice + 1});
  }
  progress.publish(std::move(waits));
}

}  // namespace tutti
