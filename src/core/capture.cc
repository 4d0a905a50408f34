#include "core/capture.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <vector>

#include "base/log.h"
#include "core/communicator.h"
#include "core/device_scope.h"
#include "core/launcher.h"
#include "core/shared_stream.h"
#include "device/host_table.h"

namespace tutti {

void CaptureLink::cut() {
  const std::lock_guard lock(mutex_);
  communicator_ = nullptr;
}

/// What a node of a graph holds: one rank's operations, or those of ranks that share a stream.
class CapturedCall {
 public:
  void add(const CapturedOperations& rank) {
    ranks_.push_back({rank.communicator->captureLink(), rank.operations});
    // The order in which all are locked, whichever graph they are in.
    std::sort(ranks_.begin(), ranks_.end(),
              [](const Rank& a, const Rank& b) { return std::less<>()(a.link.get(), b.link.get()); });
  }

  int launch(tuttiStreamTask* task) const {
    std::vector<std::unique_lock<std::mutex>> locks;
    for (const Rank& rank : ranks_) {
      locks.emplace_back(rank.link->mutex_);
      if (rank.link->communicator_ != nullptr) continue;
      logWarn(
          "launch of a graph with a captured call on a communicator that was destroyed: the call is left "
          "out");
      return ENODEV;
    }
    std::vector<RankTask*> tasks;
    for (const Rank& rank : ranks_) {
      tasks.push_back(rank.link->communicator_->tasks().acquire(rank.operations));
      *task = replayTask(tasks.back());
    }
    if (tasks.size() > 1) *task = sharedWork(std::move(tasks));
    return 0;
  }

 private:
  struct Rank {
    std::shared_ptr<CaptureLink> link;
    std::vector<Operation> operations;
  };
  std::vector<Rank> ranks_;
};

namespace {

int launchCall(void* context, tuttiStreamTask* task) {
  return static_cast<CapturedCall*>(context)->launch(task);
}
void releaseCall(void* context) { delete static_cast<CapturedCall*>(context); }

/// Adds the streams of the operations, each once.
void addStreams(std::span<const Operation> operations, std::vector<void*>& streams) {
  for (const Operation& operation : operations)
    if (std::find(streams.begin(), streams.end(), operation.stream) == streams.end())
      streams.push_back(operation.stream);
}

/// As shareStream; the default stream cannot be captured.
bool shareCapture(const CapturedOperations& a, const CapturedOperations& b) {
  return a.communicator->session() == b.communicator->session() &&
         a.operations.front().stream == b.operations.front().stream;
}

/// One node for the ranks given.
Status captureNode(std::span<const CapturedOperations* const> ranks) {
  TUTTI_ASSIGN(const tuttiHostRuntime_v1* runtime, hostTable());
  const DeviceScope device(*runtime, ranks.front()->communicator->device());
  std::vector<void*> streams;
  auto call = std::make_unique<CapturedCall>();
  for (const CapturedOperations* rank : ranks) {
    addStreams(rank->operations, streams);
    call->add(*rank);
  }
  const int error =
      runtime->streamCaptureAdd(streams.data(), streams.size(), {launchCall, releaseCall, call.get()});
  if (error != 0) return systemError(error, "add a call to the graph that is being captured");
  call.release();
  return Status::ok();
}

/// Null, cudaStreamLegacy or cudaStreamPerThread.
bool isDefaultStream(cudaStream_t stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

}  // namespace

Result<uint64_t> captureOf(const Communicator& communicator, cudaStream_t stream) {
  TUTTI_ASSIGN(const tuttiHostRuntime_v1* runtime, hostTable());
  std::optional<DeviceScope> device;
  if (isDefaultStream(stream)) device.emplace(*runtime, communicator.device());
  tuttiCaptureState state{};
  const int error = runtime->streamCapture(stream, &state);
  if (error == EPERM)
    return invalidUsage(
        "the default stream cannot be used while a blocking stream of its device is captured");
  if (error != 0)
    return systemError(error, "ask whether stream {} is captured", static_cast<const void*>(stream));
  if (state.invalidated != 0)
    return invalidUsage("the capture of stream {} was invalidated by an earlier call",
                        static_cast<const void*>(stream));
  return state.id;
}

Status captureOperations(std::vector<CapturedOperations> group) {
  Status status;
  std::vector<const CapturedOperations*> node;
  for (size_t i = 0; i < group.size(); ++i) {
    if (group[i].communicator == nullptr) continue;
    node.assign(1, &group[i]);
    for (size_t j = i + 1; j < group.size(); ++j)
      if (group[j].communicator != nullptr && shareCapture(group[i], group[j])) node.push_back(&group[j]);
    if (Status added = captureNode(node); !added.isOk()) status = std::move(added);
    for (size_t j = i + 1; j < group.size(); ++j)
      if (std::find(node.begin(), node.end(), &group[j]) != node.end()) group[j].communicator = nullptr;
  }
  return status;
}

}  // namespace tutti
