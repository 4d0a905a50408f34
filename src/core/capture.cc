#include "core/capture.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "base/log.h"
#include "core/communicator.h"
#include "core/device_scope.h"
#include "core/launcher.h"
#include "device/host_table.h"

namespace tutti {

void CaptureLink::cut() {
  const std::lock_guard lock(mutex_);
  communicator_ = nullptr;
}

/// What a node of a graph holds.
class CapturedCall {
 public:
  CapturedCall(std::shared_ptr<CaptureLink> link, std::span<const Operation> operations)
      : link_(std::move(link)), operations_(operations.begin(), operations.end()) {}

  int launch(tuttiStreamTask* task) const {
    const std::lock_guard lock(link_->mutex_);
    Communicator* communicator = link_->communicator_;
    if (communicator == nullptr) {
      logWarn(
          "launch of a graph with a captured call on a communicator that was destroyed: the call is left "
          "out");
      return ENODEV;
    }
    *task = replayTask(communicator->tasks().acquire(operations_));
    return 0;
  }

 private:
  const std::shared_ptr<CaptureLink> link_;
  const std::vector<Operation> operations_;
};

namespace {

int launchCall(void* context, tuttiStreamTask* task) {
  return static_cast<CapturedCall*>(context)->launch(task);
}
void releaseCall(void* context) { delete static_cast<CapturedCall*>(context); }

/// The streams of the operations, each once.
std::vector<void*> streamsOf(std::span<const Operation> operations) {
  std::vector<void*> streams;
  for (const Operation& operation : operations)
    if (std::find(streams.begin(), streams.end(), operation.stream) == streams.end())
      streams.push_back(operation.stream);
  return streams;
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

Status captureOperations(Communicator& communicator, std::span<const Operation> operations) {
  TUTTI_ASSIGN(const tuttiHostRuntime_v1* runtime, hostTable());
  const DeviceScope device(*runtime, communicator.device());
  const std::vector<void*> streams = streamsOf(operations);
  auto call = std::make_unique<CapturedCall>(communicator.captureLink(), operations);
  const int error =
      runtime->streamCaptureAdd(streams.data(), streams.size(), {launchCall, releaseCall, call.get()});
  if (error != 0) return systemError(error, "add a call to the graph that is being captured");
  call.release();
  return Status::ok();
}

}  // namespace tutti
