#include "core/communicator.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/log.h"
#include "base/params.h"
#include "core/settings.h"
#include "device/host_table.h"
#include "topology/host_identity.h"

namespace tutti {
namespace {

constexpr auto kTeardownLimit = std::chrono::seconds(10);

/// PeerInfo as bytes: fields separated by newlines, which none of them may contain.
std::string encodePeer(const PeerInfo& info) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", info.rank, info.hostName, info.hostId, info.pid,
                     info.processToken, info.device);
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
  if (fields.size() != 6 || !parseNumber(fields[0], info.rank) || info.rank != rank ||
      !parseNumber(fields[3], info.pid) || !parseNumber(fields[4], info.processToken) ||
      !parseNumber(fields[5], info.device)) {
    return remoteError("rank {} sent a malformed description of itself ({} bytes)", rank, text.size());
  }
  info.hostName = fields[1];
  info.hostId = fields[2];
  return info;
}

}  // namespace

Communicator::Communicator(const CommunicatorSetup& setup)
    : setup_(setup), faults_(std::make_shared<FaultState>()) {}

Result<std::unique_ptr<Communicator>> Communicator::create(const CommunicatorSetup& setup) {
  std::unique_ptr<Communicator> communicator(new Communicator(setup));
  const Deadline deadline = Deadline::after(std::chrono::seconds(params().initTimeout()));
  TUTTI_TRY(communicator->connect(deadline).withContext("rank {} of {}", setup.rank, setup.ranks));
  return communicator;
}

Status Communicator::connect(Deadline deadline) {
  JoinRequest request;
  request.id = setup_.id;
  request.rank = setup_.rank;
  request.nranks = setup_.ranks;
  request.settings = agreedSettings();
  request.faults = faults_;
  request.onFault = [this] { wake(); };
  TUTTI_ASSIGN(control_, Control::join(request, deadline));
  TUTTI_TRY(exchangePeers(deadline));
  std::set<std::string> hosts;
  for (const PeerInfo& peer : peers_) hosts.insert(peer.hostId);
  const EndpointOptions options =
      endpointOptions(setup_.ranks, static_cast<int>(hosts.size()), control_->secret());
  TUTTI_ASSIGN(endpoint_, Endpoint::create(peers_, setup_.rank, options, *control_, faults_, deadline));
  operators_ = std::make_unique<ReductionOps>(setup_.ranks);
  TUTTI_ASSIGN(planner_, Planner::create(*endpoint_, static_cast<int>(hosts.size())));
  ExecutorOptions executorOptions;
  executorOptions.wait = WaitPolicy::forRanks(*endpoint_);
  if (const std::string target = params().simdTarget(); !target.empty()) {
    TUTTI_ASSIGN(executorOptions.target, parseTarget(target).withContext("TUTTI_SIMD_TARGET"));
  }
  executor_ = std::make_unique<HostExecutor>(*endpoint_, faults_, executorOptions);
  tasks_ = std::make_unique<TaskQueue>(*this);
  // Nobody returns before everybody can: an operation may then count on its peers' listeners.
  TUTTI_TRY(control_->barrier(deadline));
  logInfo(Subsystem::init, "communicator {} rank {} of {} on device {}: {} host(s), {} local rank(s): ready",
          static_cast<const void*>(this), setup_.rank, setup_.ranks, setup_.device, hosts.size(),
          endpoint_->localRanks().size());
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
  TUTTI_ASSIGN(const auto all, control_->allGather(encodePeer(mine), deadline));
  for (int rank = 0; rank < setup_.ranks; ++rank) {
    TUTTI_ASSIGN(PeerInfo info, decodePeer(all[static_cast<size_t>(rank)], rank));
    peers_.push_back(std::move(info));
  }
  return Status::ok();
}

Communicator::~Communicator() {
  if (!closed_) abort();
}

void Communicator::wake() {
  if (endpoint_) endpoint_->bell(setup_.rank)->ring();
  if (tasks_) tasks_->wakeWaiters();
}

void Communicator::fail(const Status& error) {
  if (faults_->stopped()) return;
  logWarn("rank {}: {}", setup_.rank, error.message());
  faults_->raise(error);
  wake();
}

Status Communicator::finalize() { return tasks_->drain(Deadline::never()); }

Status Communicator::close() {
  if (closed_) return Status::ok();
  captureLink_->cut();
  // A running operation ends when its peers do their part, or with a fault: no other limit is set for it.
  Status status = tasks_->drain(Deadline::never());
  closed_ = true;
  if (faults_->stopped()) {
    control_->announceFault(faults_->error());
  } else {
    control_->leave(Deadline::after(kTeardownLimit));
  }
  control_.reset();
  tasks_.reset();
  executor_.reset();
  endpoint_.reset();
  return status;
}

void Communicator::abort() {
  if (closed_) return;
  closed_ = true;
  captureLink_->cut();
  faults_->raise(Status(ncclRemoteError, fmt::format("rank {} aborted the communicator", setup_.rank)));
  wake();
  if (control_) control_->announceFault(faults_->error());
  if (tasks_) tasks_->drain(Deadline::after(kTeardownLimit)).ignore();
  control_.reset();
  tasks_.reset();
  executor_.reset();
  endpoint_.reset();
}

}  // namespace tutti
