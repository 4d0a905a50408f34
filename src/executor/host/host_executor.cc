#include "executor/host/host_executor.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

constexpr size_t kCachedSchedules = 1024;

size_t automaticStreamBytes(const Endpoint& endpoint) {
  const long cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  const size_t bytes = cache > 0 ? static_cast<size_t>(cache) : size_t{32} << 20;
  return bytes / std::max<size_t>(1, endpoint.localRanks().size());
}

}  // namespace

HostExecutor::HostExecutor(Endpoint& endpoint, std::shared_ptr<FaultState> faults,
                           const ExecutorOptions& options)
    : endpoint_(endpoint), faults_(std::move(faults)), options_(options) {
  if (options_.streamBytes == 0) options_.streamBytes = automaticStreamBytes(endpoint);
  const auto count = static_cast<size_t>(endpoint.options().channels);
  for (size_t i = 0; i < count; ++i) {
    channels_.push_back(std::make_unique<ChannelState>());
    channels_.back()->channel = static_cast<int>(i);
  }
  recent_.resize(count);
}

HostExecutor::~HostExecutor() { returnConnections(); }

Result<const std::shared_ptr<const BoundSchedule>*> HostExecutor::bind(const Launch& launch) {
  const int channel = launch.channel;
  if (channel < 0 || static_cast<size_t>(channel) >= channels_.size()) {
    return internalError("channel {} of {}", channel, channels_.size());
  }
  auto& recent = recent_[static_cast<size_t>(channel)];
  if (recent != nullptr && &(*recent)->schedule() == launch.schedule.get()) return recent;
  const Key key{launch.schedule.get(), channel};
  auto found = bound_.find(key);
  if (found == bound_.end()) {
    if (bound_.size() >= kCachedSchedules) evictUnused();
    TUTTI_ASSIGN(auto made,
                 BoundSchedule::make(endpoint_, *channels_[static_cast<size_t>(channel)], launch.schedule)
                     .withContext("rank {}", endpoint_.rank()));
    found = bound_.emplace(key, std::move(made)).first;  // references into the map stay valid
  }
  recent = &found->second;
  return recent;
}

void HostExecutor::evictUnused() {
  std::fill(recent_.begin(), recent_.end(), nullptr);
  std::erase_if(bound_, [](const auto& entry) { return entry.second.use_count() == 1; });
}

Result<RunHandle> HostExecutor::start(std::span<const Launch> launches) {
  if (freeRuns_.empty()) {
    runs_.push_back(std::unique_ptr<HostRun>(new HostRun(this)));
    freeRuns_.reserve(runs_.size());
    freeRuns_.push_back(runs_.back().get());
  }
  RunHandle run(freeRuns_.back());
  freeRuns_.pop_back();
  if (Status status = statusOf([&] { return run->reset(launches); }); !status.isOk()) {
    run->state_ = HostRun::State::failed;  // no ticket was drawn
    return status;
  }
  return run;
}

void HostExecutor::recycle(HostRun* run) {
  if (run->state_ != HostRun::State::done && run->state_ != HostRun::State::failed) {
    // Its tickets would never come up for those behind it, and peers wait for its messages.
    faults_->raise(
        internalError("rank {}: a collective was dropped at {}", endpoint_.rank(), run->position()));
  }
  freeRuns_.push_back(run);
  if (freeRuns_.size() == runs_.size()) returnConnections();
}

void RunRecycler::operator()(HostRun* run) const { run->executor().recycle(run); }

void HostExecutor::takeConnections() {
  if (haveConnections_) return;
  haveConnections_ = true;
  endpoint_.endSleep();
}

void HostExecutor::returnConnections() {
  if (!haveConnections_) return;
  haveConnections_ = false;
  endpoint_.beginSleep();
}

}  // namespace tutti
