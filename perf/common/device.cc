#include "common/device.h"

#include <algorithm>

namespace tutti::perf {

Outcome checkCuda(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return Outcome::ok();
  return Outcome::failure(what + ": " + cudaGetErrorString(error));
}

Outcome checkNccl(ncclResult_t result, const std::string& what, ncclComm_t comm) {
  if (result == ncclSuccess) return Outcome::ok();
  std::string message = what + ": " + ncclGetErrorString(result);
  const char* detail = ncclGetLastError(comm);
  if (detail && *detail) message += std::string(": ") + detail;
  return Outcome::failure(message);
}

DeviceBuffer::~DeviceBuffer() {
  if (!data_) return;
  if (source_ == Source::nccl)
    ncclMemFree(data_);
  else
    cudaFree(data_);
}

Outcome DeviceBuffer::allocate(Source source, size_t bytes, DeviceBuffer& buffer) {
  bytes = std::max<size_t>(bytes, 1);
  void* data = nullptr;
  const std::string size = " of " + std::to_string(bytes) + " bytes";
  const Outcome outcome = source == Source::nccl
                              ? checkNccl(ncclMemAlloc(&data, bytes), "ncclMemAlloc" + size)
                              : checkCuda(cudaMalloc(&data, bytes), "cudaMalloc" + size);
  if (!outcome.isOk()) return outcome;
  DeviceBuffer fresh;
  fresh.source_ = source;
  fresh.data_ = static_cast<std::byte*>(data);
  fresh.bytes_ = bytes;
  buffer = std::move(fresh);
  return Outcome::ok();
}

Stream::~Stream() {
  if (stream_) cudaStreamDestroy(stream_);
}

Outcome Stream::create(bool null, Stream& stream) {
  Stream fresh;
  if (!null) {
    const Outcome outcome = checkCuda(cudaStreamCreateWithFlags(&fresh.stream_, cudaStreamNonBlocking),
                                      "cudaStreamCreateWithFlags");
    if (!outcome.isOk()) return outcome;
  }
  stream = std::move(fresh);
  return Outcome::ok();
}

StreamGraph::~StreamGraph() {
  cudaGraph_t graph = nullptr;
  // Left over from a failed run: the stream must execute again.
  if (capturing_ && cudaStreamEndCapture(stream_, &graph) == cudaSuccess) cudaGraphDestroy(graph);
  if (exec_) cudaGraphExecDestroy(exec_);
}

Outcome StreamGraph::begin(cudaStream_t stream) {
  // The other threads of the process capture at the same time, and allocate before they do.
  const Outcome outcome =
      checkCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  stream_ = stream;
  capturing_ = outcome.isOk();
  return outcome;
}

Outcome StreamGraph::end() {
  cudaGraph_t graph = nullptr;
  capturing_ = false;
  if (const Outcome outcome = checkCuda(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
      !outcome.isOk())
    return outcome;
  const Outcome outcome = checkCuda(cudaGraphInstantiate(&exec_, graph, 0), "cudaGraphInstantiate");
  cudaGraphDestroy(graph);
  return outcome;
}

Outcome StreamGraph::launch() const { return checkCuda(cudaGraphLaunch(exec_, stream_), "cudaGraphLaunch"); }

EventList::~EventList() {
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

Outcome EventList::create(size_t count) {
  while (events_.size() < count) {
    cudaEvent_t event = nullptr;
    const Outcome outcome = checkCuda(cudaEventCreate(&event), "cudaEventCreate");
    if (!outcome.isOk()) return outcome;
    events_.push_back(event);
  }
  return Outcome::ok();
}

Outcome EventList::record(size_t index, cudaStream_t stream) {
  return checkCuda(cudaEventRecord(events_[index], stream), "cudaEventRecord");
}

Outcome EventList::secondsBetween(size_t index, double& seconds) const {
  float milliseconds = 0;
  const cudaError_t error = cudaEventElapsedTime(&milliseconds, events_[index], events_[index + 1]);
  seconds = static_cast<double>(milliseconds) / 1e3;
  return checkCuda(error, "cudaEventElapsedTime");
}

}  // namespace tutti::perf
