#include "core/communicator.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>

#include "algorithms/algorithm_files.h"
#include "base/affinity.h"
#include "base/hmac.h"
#include "base/io_service.h"
#include "base/log.h"
#include "base/params.h"
#include "core/call_check.h"
#include "core/job_plan.h"
#include "core/settings.h"
#include "device/device_world.h"
#include "topology/connection_choice.h"
#include "topology/host_identity.h"

namespace tutti {
namespace {

constexpr int kMostChannels = 64;
/// Where kernels run calls a channel is a thread block: some fill the links of a GPU. Virtual ones share the
/// machine's processors, so a second one is there for what several channels are.
constexpr int kChannelsOfGpus = 16;
constexpr int kChannelsOfVirtual = 2;
constexpr auto kTeardownLimit = std::chrono::seconds(10);
/// Running tasks notice a fault within microseconds; those that take longer wait behind another communicator.
constexpr auto kQuiesceLimit = std::chrono::milliseconds(500);
/// News of a death travels by rank 0.
constexpr auto kNewsLimit = std::chrono::milliseconds(500);

/// PeerInfo as bytes: fields separated by newlines, which none of them may contain.
std::string encodePeer(const PeerInfo& info) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", info.rank, info.hostName, info.hostId,
                     info.pid, info.processToken, info.device, info.numaNode, info.topologyDigest,
                     info.processors, info.machineId, info.gpu);
}

template <typename T>
bool parseNumber(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

Result<PeerInfo> decodePeer(std::string_view text, int rank) {
  std::vector<std::string_view> fields;
  for (size_t from = 0; from <= text.size();) {
    const size_t to = std::min(text.find('\n', from), text.size());
    fields.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  PeerInfo info;
  if (fields.size() != 11 || !parseNumber(fields[0], info.rank) || info.rank != rank ||
      !parseNumber(fields[3], info.pid) || !parseNumber(fields[4], info.processToken) ||
      !parseNumber(fields[5], info.device) || !parseNumber(fields[6], info.numaNode) ||
      !parseNumber(fields[7], info.topologyDigest) || !parseNumber(fields[8], info.processors)) {
    return remoteError("rank {} sent a malformed description of itself ({} bytes)", rank, text.size());
  }
  info.hostName = fields[1];
  info.hostId = fields[2];
  info.machineId = fields[9];
  info.gpu = fields[10];
  return info;
}

}  // namespace

Communicator::Communicator(const CommunicatorSetup& setup)
    : setup_(setup), faults_(std::make_shared<FaultState>()), making_(std::make_shared<Making>(faults_)) {}

void Communicator::setRank(int rank, int ranks) {
  setup_.rank = rank;
  setup_.ranks = ranks;
}

Status Communicator::connect() {
  const Deadline deadline = Deadline::after(std::chrono::seconds(params().initTimeout()));
  Status status =
      statusOf([&] { return connectTo(deadline); }).withContext("rank {} of {}", setup_.rank, setup_.ranks);
  if (const Status fault = making_->finish(); status.isOk() && !fault.isOk()) status = fault;
  making_.reset();
  if (status.isOk()) return status;
  if (deadline.passed() && (status.code() == ncclSystemError || status.code() == ncclRemoteError) &&
      setup_.timedOut != ncclRemoteError)
    status = Status(setup_.timedOut, status.message());
  // The peers would wait for this rank until their deadline.
  faults_->raise(status);
  closed_ = true;
  endControl();
  releaseParts();
  return status;
}

Status Communicator::connectTo(Deadline deadline) {
  JoinRequest request;
  request.id = setup_.id;
  request.rank = setup_.rank;
  request.nranks = setup_.ranks;
  request.kin = std::move(setup_.kin);
  request.settings = agreedSettings();
  const TuningSource tuning = TuningSource::read(params().tuningFile());
  request.settings["TUTTI_TUNING_FILE"] = tuning.digest();
  request.settings["config.minCTAs"] = std::to_string(setup_.minChannels);
  request.settings["config.maxCTAs"] = std::to_string(setup_.maxChannels);
  // Read before, so that ranks compare what they found; an error waits until it can reach the others.
  const auto algorithmTexts = AlgorithmTexts::read(params().algoFiles());
  if (!params().algoFiles().empty())
    request.settings["TUTTI_ALGO_FILES"] =
        algorithmTexts.isOk() ? algorithmTexts->digest() : algorithmTexts.status().message();
  request.faults = faults_;
  request.timedOut = setup_.timedOut;
  request.onFault = [this] {
    raiseDependents(faults_->error(), false);
    wake();
  };
  request.onNote = [weak = std::weak_ptr<Monitor>(monitor_)](int from, std::string_view bytes) {
    if (const auto monitor = weak.lock()) monitor->onNote(from, bytes);
  };
  TUTTI_ASSIGN(control_, Control::join(request, deadline));
  session_ = control_->session();
  // After join(): an error here reaches the peers, who would otherwise wait for this rank.
  TUTTI_TRY(algorithmTexts.status().withContext("TUTTI_ALGO_FILES"));
  TUTTI_ASSIGN(const auto algorithms,
               LoadedAlgorithms::load(*algorithmTexts, setup_.ranks).withContext("TUTTI_ALGO_FILES"));
  TUTTI_TRY(findTopology());
  const AffinityScope scope(binding_.cpus);
  TUTTI_TRY(exchangePeers(deadline));
  TUTTI_ASSIGN(const JobPlan plan, planJob(peers_, *topology_, *control_, deadline));
  EndpointOptions options = endpointOptions(setup_.ranks, plan.hosts, control_->secret());
  options.memoryNode = binding_.memoryNode;
  TUTTI_TRY(kernelDriver().status());
  if (world() != World::hostThreads && !params().minNchannels.isSet())
    options.channels =
        std::max(options.channels, world() == World::gpus ? kChannelsOfGpus : kChannelsOfVirtual);
  // CTAs are channels here. The environment, where it says something, goes before the program.
  if (setup_.minChannels > 0 && !params().minNchannels.isSet())
    options.channels = std::max(options.channels, std::min(setup_.minChannels, kMostChannels));
  if (setup_.maxChannels > 0 && !params().maxNchannels.isSet())
    options.channels = std::min(options.channels, setup_.maxChannels);
  TUTTI_ASSIGN(auto candidates, algorithms->withShipped(options.slotBytes, options.scratchBytes));
  TUTTI_ASSIGN(auto endpoint, Endpoint::create(peers_, setup_.rank, options, *control_, faults_, deadline));
  {
    const std::lock_guard lock(partsMutex_);
    endpoint_ = std::move(endpoint);
  }
  operators_ = std::make_unique<ReductionOps>(setup_.ranks);
  deviceBandwidth_ = plan.deviceBandwidth;
  TUTTI_TRY(startKernels(deadline));
  TUTTI_ASSIGN(planner_, Planner::create(*endpoint_, plan, tuning, std::move(candidates),
                                         kernels_ != nullptr ? &kernels_->planning() : nullptr));
  ExecutorOptions executorOptions;
  executorOptions.wait = WaitPolicy::forRanks(*endpoint_);
  if (const std::string target = params().simdTarget(); !target.empty()) {
    TUTTI_ASSIGN(executorOptions.target, parseTarget(target).withContext("TUTTI_SIMD_TARGET"));
  }
  executor_ = std::make_unique<HostExecutor>(*endpoint_, faults_, executorOptions);
  checksCalls_ = callsAreChecked();
  {
    const std::lock_guard lock(partsMutex_);
    tasks_ = std::make_unique<TaskQueue>(*this);
  }
  oneSided_ = std::make_unique<OneSided>(*this);
  startMonitor();
  // Nobody returns before everybody can: an operation may then count on its peers' listeners.
  TUTTI_TRY(control_->barrier(deadline));
  faults_->tellAlways(true);
  logInfo(Subsystem::init, "communicator {} rank {} of {} on device {}: {} host(s), {} local rank(s): ready",
          static_cast<const void*>(this), setup_.rank, setup_.ranks, setup_.device, plan.hosts,
          endpoint_->localRanks().size());
  return Status::ok();
}

void Communicator::startMonitor() {
  Monitor::Subject subject;
  subject.rank = setup_.rank;
  subject.ranks = setup_.ranks;
  subject.device = setup_.device;
  subject.name = setup_.name;
  for (const PeerInfo& peer : peers_) {
    const Digest digest = sha256(peer.hostId);
    std::memcpy(&subject.hostKeys.emplace_back(), digest.data(), sizeof(uint64_t));
  }
  subject.control = control_.get();
  subject.bell = endpoint_->bell(setup_.rank);
  subject.faults = faults_;
  subject.timedOut = setup_.timedOut;
  subject.busy = [this] { return tasks_->busy() || (kernels_ != nullptr && kernels_->busy()); };
  if (kernels_ != nullptr) {
    subject.observe = [this](Progress& progress) { kernels_->observe(progress); };
    subject.details = [this] { return kernels_->details(); };
  }
  subject.fail = [this](const Status& error) { fail(error); };
  monitor_->start(std::move(subject));
}

/// Kernels run the calls of ranks that are all of this process.
Status Communicator::startKernels(Deadline deadline) {
  TUTTI_ASSIGN(Driver* const driver, kernelDriver());
  if (driver == nullptr) return Status::ok();
  const auto here = [&](const PeerInfo& peer) {
    return peer.processToken == peers_[setup_.rank].processToken;
  };
  if (!std::ranges::all_of(peers_, here)) {
    if (!driver->isVirtual())
      return Status(ncclInvalidUsage,
                    "ranks of several processes: GPUs of different processes cannot exchange data yet");
    if (setup_.rank == 0)
      logWarn(
          "TUTTI_HOST_KERNELS=1: CPU threads run the calls, since the communicator's ranks are in several "
          "processes");
    return Status::ok();
  }
  TUTTI_ASSIGN(auto made, KernelCalls::create(*this, *driver, deadline));
  const std::lock_guard lock(partsMutex_);
  kernels_ = std::move(made);
  return Status::ok();
}

bool Communicator::mayReachDevice(int rank, int peer, std::string* why) const {
  if (params().p2pDisable()) {
    *why = "NCCL_P2P_DISABLE=1";
    return false;
  }
  std::optional<PathType> level;
  if (!params().p2pLevel.isAuto()) level = static_cast<PathType>(params().p2pLevel.level());
  if (level == PathType::loc) {
    *why = "NCCL_P2P_LEVEL=LOC";
    return false;
  }
  const NodeId gpu = gpuNode(rank), other = gpuNode(peer);
  // Where the topology has no such GPUs, nothing is known to lie between them.
  if (gpu == kNoNode || other == kNoNode) return true;
  return mayReach(topology_->graph, topology_->paths(), gpu, other, level, why);
}

/// In the topology's graph; kNoNode where that does not have the rank's GPU.
NodeId Communicator::gpuNode(int rank) const {
  const auto gpu = parseBusId(peers_[static_cast<size_t>(rank)].gpu);
  return gpu ? topology_->graph.gpuAt(*gpu) : kNoNode;
}

KernelMachine Communicator::kernelMachine() const {
  // Twins store lines whole; GPUs do over NVLink, and in their own memory.
  const auto isWhole = [&](int rank) {
    const NodeId from = gpuNode(0), to = gpuNode(rank);
    return from != kNoNode && to != kNoNode && topology_->paths().between(from, to).type <= PathType::nvb;
  };
  bool wholeLines = true;
  for (int rank = 0; rank < setup_.ranks && world() == World::gpus; ++rank) wholeLines &= isWhole(rank);
  return {.bandwidth = deviceBandwidth_, .wholeLines = wholeLines};
}

Status Communicator::drainKernels(Deadline deadline) const {
  return kernels_ == nullptr ? Status::ok() : kernels_->drain(deadline);
}

/// What a kernel reported may not have been asked for yet; the peers must learn of it, too.
Status Communicator::endKernels(Deadline deadline) {
  TUTTI_TRY(drainKernels(deadline));
  if (kernels_ == nullptr || faults_->stopped()) return Status::ok();
  const Status reported = kernels_->deviceError();
  if (!reported.isOk()) fail(reported);
  return reported;
}

Status Communicator::findTopology() {
  TUTTI_ASSIGN(topology_, hostTopology());
  place_ = devicePlace(*topology_, setup_.device);
  binding_ = bindingOf(*topology_, place_);
  logInfo(Subsystem::init, "rank {}: device {} is at {}", setup_.rank, setup_.device, place_.text());
  if (topology_->severalNodes && binding_.cpus.empty())
    logInfo(Subsystem::init, "rank {}: its thread may not use the CPUs of NUMA node {}: nothing is bound",
            setup_.rank, place_.numaNode);
  if (!binding_.cpus.empty()) ioService().runOn(binding_.cpus);
  dumpTopology(setup_.rank);
  return Status::ok();
}

Status Communicator::exchangePeers(Deadline deadline) {
  PeerInfo mine;
  TUTTI_ASSIGN(const HostIdentity host, thisProcess());
  mine.rank = setup_.rank;
  mine.hostName = host.hostName;
  mine.hostId = host.hostId;
  mine.pid = host.pid;
  mine.processToken = host.processToken;
  mine.device = setup_.device;
  mine.numaNode = place_.numaNode;
  if (const auto gpu = gpuOf(*topology_, setup_.device)) mine.gpu = gpu->text();
  mine.topologyDigest = topology_->digest;
  mine.machineId = host.machineId;
  mine.processors = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  TUTTI_ASSIGN(const auto all, control_->allGather(encodePeer(mine), deadline));
  for (int rank = 0; rank < setup_.ranks; ++rank) {
    TUTTI_ASSIGN(PeerInfo info, decodePeer(all[static_cast<size_t>(rank)], rank));
    peers_.push_back(std::move(info));
  }
  return Status::ok();
}

Communicator::~Communicator() {
  if (!closed_) interrupt(Status(ncclRemoteError, "the communicator was given up"));
  releaseParts();
}

void Communicator::wake() {
  const std::lock_guard lock(partsMutex_);
  if (endpoint_) endpoint_->bell(setup_.rank)->ring();
  if (tasks_) tasks_->wakeWaiters();
  if (kernels_ && faults_->stopped()) kernels_->abort();
}

void Communicator::fail(const Status& error) {
  if (!faults_->stopped()) {
    logWarn("rank {}: {}", setup_.rank, error.message());
    faults_->raise(error);
    raiseDependents(error, false);
    wake();
  }
  // The peers wait for what this rank will not do any more. No news when the failure came from them.
  const std::lock_guard lock(controlMutex_);
  if (control_ != nullptr) control_->announceFault(faults_->error());
}

Status Communicator::rootCause(const Status& error) const {
  // Arguments, usage and the library's own mistakes are what they are.
  if (error.code() != ncclSystemError && error.code() != ncclRemoteError) return error;
  const Deadline limit = Deadline::after(kNewsLimit);
  while (!faults_->stopped() && !limit.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return faults_->stopped() ? faults_->error() : error;
}

void Communicator::adopt(Communicator& child, bool onFault) {
  {
    const std::lock_guard lock(dependentsMutex_);
    std::erase_if(dependents_, [](const Dependent& one) { return one.making.expired(); });
    dependents_.push_back({child.making_, onFault});
  }
  // What came before it was in the list did not reach it.
  if (onFault && faults_->stopped() && !revoked()) raiseDependents(faults_->error(), false);
}

void Communicator::raiseDependents(const Status& why, bool aborted) {
  const std::lock_guard lock(dependentsMutex_);
  for (const Dependent& one : dependents_) {
    if (!aborted && !one.onFault) continue;
    if (const auto making = one.making.lock()) making->raise(why.withContext("the parent communicator"));
  }
}

Result<std::vector<std::string>> Communicator::exchange(const std::string& mine, Deadline deadline) {
  const std::lock_guard lock(exchangeMutex_);
  if (!revoked()) {
    TUTTI_TRY(error());
    return control_->allGather(mine, deadline);
  }
  // The control channel ended with the revocation: all ranks meet anew, at a place that all can compute.
  JoinRequest request;
  request.id = deriveId(0, "meeting after revoke");
  std::vector<int> everyone(static_cast<size_t>(setup_.ranks));
  std::iota(everyone.begin(), everyone.end(), 0);
  request.kin = kin(everyone);
  request.rank = setup_.rank;
  request.nranks = setup_.ranks;
  request.faults = std::make_shared<FaultState>();
  const auto making = std::make_shared<Making>(request.faults);
  {
    const std::lock_guard dependents(dependentsMutex_);
    dependents_.push_back({making, false});
  }
  TUTTI_ASSIGN(const std::unique_ptr<Control> meeting, Control::join(request, deadline));
  auto all = meeting->allGather(mine, deadline);
  meeting->leave(Deadline::after(kTeardownLimit));
  return all;
}

Status Communicator::finalize() {
  TUTTI_TRY(tasks_->drain(Deadline::never()));
  return endKernels(Deadline::never());
}

Status Communicator::revoke(std::string_view why) {
  if (revoked_.exchange(true, std::memory_order_acq_rel)) return Status::ok();
  const Status error(ncclRemoteError, fmt::format("rank {} {}", setup_.rank, why));
  faults_->tellAlways(false);
  faults_->raise(error);  // no effect when a peer's failure came first
  wake();
  control_->announceFault(faults_->error());
  // Tasks behind other communicators' in a stream's queue end when their turn comes.
  tasks_->drain(Deadline::after(kQuiesceLimit)).ignore();
  drainKernels(Deadline::after(kQuiesceLimit)).ignore();
  return Status::ok();
}

Status Communicator::close() {
  if (closed_) return Status::ok();
  captureLink_->cut();
  if (tasks_ == nullptr) {  // what had to come before connect() failed: a split of a parent that had failed
    closed_ = true;
    releaseParts();
    return Status::ok();
  }
  // A running operation ends when its peers do their part, or with a fault: no other limit is set for it.
  Status status = tasks_->drain(Deadline::never());
  if (const Status kernels = endKernels(Deadline::never()); status.isOk()) status = kernels;
  closed_ = true;
  monitor_->stop();
  if (!faults_->stopped()) control_->leave(Deadline::after(kTeardownLimit));
  releaseParts();
  return revoked() ? Status::ok() : status;
}

void Communicator::interrupt(const Status& why) {
  faults_->tellAlways(false);
  faults_->raise(why);
  raiseDependents(why, true);
  wake();
}

void Communicator::abort(std::unique_ptr<Communicator> communicator) {
  Communicator& self = *communicator;
  self.captureLink_->cut();
  self.interrupt(Status(ncclRemoteError, fmt::format("rank {} aborted the communicator", self.setup_.rank)));
  self.monitor_->stop();
  self.endControl();
  self.closed_ = true;
  if (self.tasks_ && !self.tasks_->drain(Deadline::after(kQuiesceLimit)).isOk()) {
    self.tasks_->abandon(std::move(communicator));
  }
}

void Communicator::endControl() {
  std::unique_ptr<Control> control;
  {
    const std::lock_guard lock(controlMutex_);
    control = std::move(control_);
  }
  if (control == nullptr) return;
  if (faults_->stopped()) control->announceFault(faults_->error());
  control.reset();  // no news reaches this object any more
}

void Communicator::releaseParts() {
  monitor_->stop();
  endControl();
  std::unique_ptr<TaskQueue> tasks;
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<KernelCalls> kernels;
  {
    const std::lock_guard lock(partsMutex_);
    tasks = std::move(tasks_);
    endpoint = std::move(endpoint_);
    kernels = std::move(kernels_);
  }
  if (kernels != nullptr && !kernels->drain(Deadline::after(kQuiesceLimit)).isOk()) {
    logInfo(Subsystem::init,
            "rank {}: kernels of an aborted communicator are still enqueued; their memory stays",
            setup_.rank);
    KernelCalls::giveUp(std::move(kernels));
  }
  kernels.reset();
  tasks.reset();
  oneSided_.reset();
  executor_.reset();
}

}  // namespace tutti
