#include "executor/cuda/cuda_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "device/kernel_table.h"
#include "device/protocol_name.h"
#include "executor/cuda/cuda_comm.h"
#include "executor/cuda/cuda_launch.h"
#include "executor/cuda/cuda_memory.h"
#include "executor/cuda/cuda_messages.h"
#include "executor/cuda/cuda_program.h"
#include "executor/cuda/cuda_shape.h"

namespace tutti {
namespace {

/// cudaStreamPerThread: one value for many streams.
bool meansManyStreams(DeviceStream stream) { return reinterpret_cast<uintptr_t>(stream) == 2; }

Protocol hostProtocol(device::Protocol protocol) { return static_cast<Protocol>(protocol); }

}  // namespace

struct CudaExecutor::State {
  State(Driver& usedDriver, std::shared_ptr<DeviceGroup> usedGroup, int usedRank)
      : group(std::move(usedGroup)),
        driver(usedDriver),
        rank(usedRank),
        device(group->device(usedRank)),
        memory(usedDriver, device),
        comm(*group, usedRank, memory),
        programs(memory),
        pieces(usedDriver, device, memory) {}
  ~State() { awaitKernels(); }

  Status open();
  Status checkUsable() const;
  /// What does not depend on the call.
  Status checkSchedule(const Schedule& schedule, const device::Program& program, int channels) const;
  Result<CudaProgram*> programFor(const CudaCall& call);
  device::Protocol protocolFor(CudaProgram& program, Protocol wanted) const;
  Result<uint32_t> blocksThatFit(ncclDataType_t type, device::Protocol protocol, uint32_t threads,
                                 uint32_t links);
  /// Threads a block such that `blocks` of them fit; the error says what is too much.
  Result<uint32_t> threadsThatFit(const CudaLaunch& launch);
  Status arrange(std::span<const MessageKey> keys, CudaLaunch* launch);
  Result<CudaLaunchFacts> launch(CudaLaunch& launch, DeviceStream stream, uint64_t capture);
  Status enqueueKernel(const CudaLaunch& launch, uint32_t threads, device::LaunchArguments& arguments,
                       DeviceStream stream, uint64_t capture);
  Result<bool> isIdle() const;
  void awaitKernels();
  void abandon();

  // The group's memory goes when everything that uses it has gone.
  const std::shared_ptr<DeviceGroup> group;
  Driver& driver;
  const int rank;
  const int device;
  mutable std::mutex mutex;  // guards what follows, but for the thread-safe functions of comm
  CudaMemory memory;
  CudaComm comm;
  CudaPrograms programs;
  LaunchMemory pieces;
  DeviceEvent lastCall = nullptr;  // behind the last call, or launch of a graph with calls
  bool hasGraphs = false;          // with calls: where their launches come is not told
  DeviceStream lastStream = nullptr;
  bool hasLastCall = false;
  uint64_t calls = 0;
  using KernelKey = std::tuple<ncclDataType_t, device::Protocol, uint32_t, uint32_t>;
  std::map<KernelKey, uint32_t> resident;
};

// ---- life

CudaExecutor::CudaExecutor(std::unique_ptr<State> state) : state_(std::move(state)) {}
CudaExecutor::~CudaExecutor() = default;

Result<std::unique_ptr<CudaExecutor>> CudaExecutor::create(Driver& driver, std::shared_ptr<DeviceGroup> group,
                                                           int rank) {
  if (rank < 0 || rank >= group->ranks())
    return internalError("rank {} of a group of {}", rank, group->ranks());
  auto state = std::make_unique<State>(driver, std::move(group), rank);
  TUTTI_TRY(state->open().withContext("rank {}: device {}", rank, state->device));
  return std::unique_ptr<CudaExecutor>(new CudaExecutor(std::move(state)));
}

Status CudaExecutor::State::open() {
  TUTTI_TRY(driver.loadKernels(device));
  TUTTI_ASSIGN(lastCall, memory.createEvent());
  return comm.create();
}

/// Memory that a kernel may still use is not freed.
void CudaExecutor::State::awaitKernels() {
  constexpr std::chrono::seconds kLongestEnd{2};  // of kernels that have been told to end
  constexpr std::chrono::milliseconds kPoll{1};
  const auto deadline = std::chrono::steady_clock::now() + kLongestEnd;
  while (hasLastCall) {
    const auto idle = isIdle();
    if (idle.isOk() && *idle) return;
    comm.abort();
    if (!idle.isOk() || std::chrono::steady_clock::now() > deadline) {
      logWarn("rank {}: a kernel on device {} has not ended; its memory stays", rank, device);
      abandon();
      return;
    }
    std::this_thread::sleep_for(kPoll);
  }
}

/// Leaves what a kernel may use to the process, the group's memory too.
void CudaExecutor::State::abandon() {
  static std::mutex keptMutex;
  static auto* const kept = new std::vector<std::shared_ptr<DeviceGroup>>;  // never destroyed
  memory.abandon();
  const std::lock_guard lock(keptMutex);
  kept->push_back(group);
}

Result<bool> CudaExecutor::State::isIdle() const {
  if (!hasLastCall) return true;
  return driver.isDone(device, lastCall);
}

// ---- what can run

Status CudaExecutor::State::checkUsable() const {
  TUTTI_TRY(comm.reportedError());
  if (comm.aborted()) return invalidUsage("rank {}: the communicator was aborted", rank);
  return Status::ok();
}

Status CudaExecutor::State::checkSchedule(const Schedule& schedule, const device::Program& program,
                                          int channels) const {
  const auto most = static_cast<int>(group->options().layout.channels);
  if (schedule.ranks != group->ranks() || schedule.rank != rank)
    return internalError("schedule {} is made for rank {} of {}, this is rank {} of {}", schedule.name,
                         schedule.rank, schedule.ranks, rank, group->ranks());
  if (channels < 1 || channels > most)
    return internalError("schedule {} on {} channels: there are {}", schedule.name, channels, most);
  if (group->isStaged() && program.usesPeerBuffers != 0 && group->ranks() > 1)
    return invalidUsage("schedule {} works in peers' buffers, which {}", schedule.name, group->stagedWhy());
  return Status::ok();
}

Result<CudaProgram*> CudaExecutor::State::programFor(const CudaCall& call) {
  if (call.schedule == nullptr) return internalError("a call without a schedule");
  TUTTI_ASSIGN(CudaProgram * program, programs.get(call.schedule, [this] {
    const auto idle = isIdle();
    return idle.isOk() && *idle;
  }));
  TUTTI_TRY(checkSchedule(*call.schedule, program->head(), call.shape.channels));
  const auto channels = static_cast<uint32_t>(call.shape.channels);
  if (program->connectedChannels < channels) {
    TUTTI_TRY(comm.connect(program->head(), channels));
    program->connectedChannels = channels;
  }
  return program;
}

device::Protocol CudaExecutor::State::protocolFor(CudaProgram& program, Protocol wanted) const {
  const auto protocol = static_cast<device::Protocol>(wanted);
  const std::string why = whyOnlySimple(program.head(), protocol);
  if (why.empty()) return protocol;
  if (program.head().sendsMessages != 0 && !program.toldSimple) {
    program.toldSimple = true;
    logInfo(Subsystem::coll, "{} {} runs under Simple instead of {}: {}", program.schedule->name,
            name(program.schedule->collective), nameOf(protocol), why);
  }
  return device::Protocol::simple;
}

Result<uint32_t> CudaExecutor::State::blocksThatFit(ncclDataType_t type, device::Protocol protocol,
                                                    uint32_t threads, uint32_t links) {
  const uint32_t shared = sharedBytesFor(links);
  const KernelKey key(type, protocol, threads, shared);
  auto known = resident.find(key);
  if (known == resident.end()) {
    TUTTI_ASSIGN(const uint32_t blocks, driver.residentBlocks(device, type, protocol, threads, shared));
    known = resident.emplace(key, blocks).first;
  }
  // Ranks on one device wait for each other there.
  return known->second / static_cast<uint32_t>(group->ranksOn(device));
}

Result<uint32_t> CudaExecutor::State::threadsThatFit(const CudaLaunch& launch) {
  const uint32_t wanted = threadsFor(driver.isVirtual(), launch.blockBytes);
  const uint32_t fewest = threadsFor(driver.isVirtual(), 0);
  uint32_t fits = 0;
  for (const uint32_t threads : {wanted, fewest}) {
    TUTTI_ASSIGN(fits, blocksThatFit(launch.type, launch.protocol, threads, launch.mostLinks));
    if (launch.blocks <= fits) return threads;
  }
  return internalError("{} blocks must run at the same time, and device {} runs {} for each of its {} ranks",
                       launch.blocks, device, fits, group->ranksOn(device));
}

Status CudaExecutor::supports(const Schedule& schedule, Protocol protocol, int channels) {
  State& s = *state_;
  TUTTI_ASSIGN(const FlatProgram flat, flatten(schedule));
  const device::Program& program = flat.head();
  TUTTI_TRY(s.checkSchedule(schedule, program, channels));
  CudaLaunch launch;
  launch.protocol = static_cast<device::Protocol>(protocol);
  if (program.sendsMessages == 0) launch.protocol = device::Protocol::simple;
  if (const std::string why = whyOnlySimple(program, launch.protocol); !why.empty())
    return invalidUsage("schedule {} cannot run under {}: {}", schedule.name, nameOf(launch.protocol), why);
  const std::lock_guard lock(s.mutex);
  if (longestSlice(schedule, s.comm.onHost(), launch.protocol) == 0)
    return invalidUsage("schedule {}: {} segments a message and {} of scratch do not fit", schedule.name,
                        schedule.maxCount, schedule.scratchSegments);
  launch.blocks = program.laneCount * static_cast<uint32_t>(channels);
  for (uint32_t l = 0; l < program.laneCount; ++l)
    launch.mostLinks = std::max(launch.mostLinks, program.lanes()[l].linkCount);
  for (int type = 0; type < (isReduction(schedule.collective) ? ncclNumTypes : 1); ++type) {
    launch.type = static_cast<ncclDataType_t>(type);
    TUTTI_TRY(
        s.threadsThatFit(launch).status().withContext("schedule {} on {} channels", schedule.name, channels));
  }
  return Status::ok();
}

// ---- calls

Result<CudaLaunchFacts> CudaExecutor::enqueue(const CudaCall& call, DeviceStream stream) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  TUTTI_TRY(s.checkUsable());
  TUTTI_ASSIGN(const uint64_t capture, s.driver.captureOf(s.device, stream));
  TUTTI_ASSIGN(CudaProgram * program, s.programFor(call).withContext("rank {}", s.rank));
  CudaLaunch launch;
  launch.protocol = s.protocolFor(*program, call.protocol);
  TUTTI_TRY(addCall(call, *program, s.comm.onHost(), &launch).withContext("rank {}", s.rank));
  launch.heads = 1;
  launch.blocks = program->head().laneCount * static_cast<uint32_t>(call.shape.channels);
  if (capture != 0) program->isCaptured = true;
  return s.launch(launch, stream, capture)
      .withContext("rank {}: schedule {} on {} channels", s.rank, call.schedule->name, call.shape.channels);
}

Result<CudaLaunchFacts> CudaExecutor::enqueueMessages(std::span<const CudaCall> messages,
                                                      DeviceStream stream) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  TUTTI_TRY(s.checkUsable());
  TUTTI_ASSIGN(const uint64_t capture, s.driver.captureOf(s.device, stream));
  CudaLaunch launch;
  std::vector<MessageKey> keys;
  std::vector<std::pair<const CudaCall*, CudaProgram*>> used;
  bool hasProtocol = false;
  const CudaPrograms::Hold hold(s.programs);
  for (const CudaCall& message : messages) {
    TUTTI_ASSIGN(CudaProgram * program, s.programFor(message).withContext("rank {}", s.rank));
    const device::Program& head = program->head();
    if (head.laneCount == 0) continue;
    if (head.laneCount != 1 || head.lanes()[0].linkCount > 1)
      return internalError("rank {}: schedule {} is no message", s.rank, message.schedule->name);
    MessageKey key{MessageKey::Kind::copy, s.rank, 0, static_cast<uint32_t>(message.shape.channels)};
    if (head.lanes()[0].linkCount == 1) {
      const device::Link& link = head.links()[head.lanes()[0].firstLink];
      key.kind = link.sends != 0 ? MessageKey::Kind::send : MessageKey::Kind::receive;
      key.peer = link.peer;
      key.port = link.port;
      const device::Protocol protocol = s.protocolFor(*program, message.protocol);
      if (hasProtocol && protocol != launch.protocol)
        return internalError("rank {}: messages of one launch under {} and {}", s.rank,
                             nameOf(launch.protocol), nameOf(protocol));
      launch.protocol = protocol;
      hasProtocol = true;
    }
    keys.push_back(key);
    used.emplace_back(&message, program);
    if (capture != 0) program->isCaptured = true;
  }
  for (const auto& [message, program] : used)  // now that the protocol is known
    TUTTI_TRY(addCall(*message, *program, s.comm.onHost(), &launch).withContext("rank {}", s.rank));
  TUTTI_TRY(s.arrange(keys, &launch).withContext("rank {}: {} messages", s.rank, keys.size()));
  return s.launch(launch, stream, capture).withContext("rank {}: {} messages", s.rank, keys.size());
}

/// Gives the calls their blocks and puts them into the order of the arguments: heads of chains first.
Status CudaExecutor::State::arrange(std::span<const MessageKey> keys, CudaLaunch* launch) {
  TUTTI_ASSIGN(const uint32_t fits,
               blocksThatFit(launch->type, launch->protocol,
                             threadsFor(driver.isVirtual(), launch->blockBytes), launch->mostLinks));
  const auto chains = arrangeMessages(keys, rank, group->ranks(), fits);
  if (chains.empty() && !keys.empty())
    return internalError(
        "device {} runs {} blocks at the same time for each of its {} ranks: too few for "
        "messages in both directions",
        device, fits, group->ranksOn(device));
  std::vector<device::Call> ordered(chains.size());
  for (size_t c = 0; c < chains.size(); ++c) {
    const MessageChain& chain = chains[c];
    auto at = static_cast<uint32_t>(c);
    for (size_t m = 0; m < chain.messages.size(); ++m) {
      if (m != 0) {
        ordered[at].next = static_cast<uint32_t>(ordered.size());
        at = ordered[at].next;
        ordered.emplace_back();
      }
      ordered[at] = launch->calls[chain.messages[m]];
      ordered[at].firstBlock = launch->blocks;
    }
    launch->blocks += chain.channels;
  }
  launch->calls = std::move(ordered);
  launch->heads = static_cast<uint32_t>(chains.size());
  return Status::ok();
}

Result<CudaLaunchFacts> CudaExecutor::State::launch(CudaLaunch& launch, DeviceStream stream,
                                                    uint64_t capture) {
  CudaLaunchFacts facts{hostProtocol(launch.protocol), launch.blocks, 0, launch.sliceBytes};
  if (launch.blocks == 0) return facts;  // nothing to do for this rank
  TUTTI_ASSIGN(facts.threads, threadsThatFit(launch));
  device::LaunchArguments arguments;
  arguments.comm = comm.onDevice();
  const size_t bytes = longBytes(launch);
  if (bytes == 0) {
    packLong(launch, nullptr, &arguments);
    TUTTI_TRY(enqueueKernel(launch, facts.threads, arguments, stream, capture));
  } else {
    TUTTI_ASSIGN(const size_t piece, pieces.take(bytes));
    const auto packed = packLong(launch, pieces.at(piece), &arguments);
    Status status = memory.upload(pieces.at(piece), packed.data(), packed.size());
    if (status.isOk()) status = enqueueKernel(launch, facts.threads, arguments, stream, capture);
    if (!status.isOk()) {
      pieces.giveBack(piece);
      return status;
    }
    TUTTI_TRY(pieces.launched(piece, capture != 0, stream));
  }
  calls += launch.calls.size();
  return facts;
}

Status CudaExecutor::State::enqueueKernel(const CudaLaunch& launch, uint32_t threads,
                                          device::LaunchArguments& arguments, DeviceStream stream,
                                          uint64_t capture) {
  // A graph has its order, but its launches must keep to that of calls and other graphs, and those to its.
  // (The event of calls stands for both: whoever launches a graph records it, too.)
  const bool isCaptured = capture != 0;
  if (isCaptured) hasLastCall = hasGraphs = true;
  if (hasLastCall && (hasGraphs || stream != lastStream || meansManyStreams(stream)))
    TUTTI_TRY(driver.waitEvent(device, stream, lastCall, isCaptured));
  TUTTI_TRY(driver.launch(
      device, stream,
      {launch.type, launch.protocol, launch.blocks, threads, sharedBytesFor(launch.mostLinks), &arguments}));
  // At once, not when another stream comes: this one may have been destroyed by then.
  const Status recorded = driver.recordEvent(device, lastCall, stream, isCaptured);
  if (!recorded.isOk()) abandon();  // nobody will know when that kernel has ended
  if (isCaptured) return recorded;
  hasLastCall = hasLastCall || recorded.isOk();
  lastStream = stream;
  return recorded;
}

// ---- the end, and what there is to see

void CudaExecutor::abort() { state_->comm.abort(); }
bool CudaExecutor::aborted() const { return state_->comm.aborted(); }
Status CudaExecutor::reportedError() const { return state_->comm.reportedError(); }
std::vector<device::Position> CudaExecutor::positions() const { return state_->comm.positions(); }

std::string CudaExecutor::position() const {
  std::string text;
  for (const device::Position& position : positions()) {
    if (!text.empty()) text += ", ";
    text += toText(position);
  }
  return text;
}

Result<bool> CudaExecutor::isIdle() const {
  const std::lock_guard lock(state_->mutex);
  return state_->isIdle();
}

uint64_t CudaExecutor::calls() const {
  const std::lock_guard lock(state_->mutex);
  return state_->calls;
}

uint64_t CudaExecutor::programs() const {
  const std::lock_guard lock(state_->mutex);
  return state_->programs.uploaded();
}

}  // namespace tutti
