// CUDA and NCCL handles that clean up after themselves, and errors as sentences.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "common/outcome.h"

namespace tutti::perf {

/// "cudaMalloc of 64 bytes: out of memory".
Outcome checkCuda(cudaError_t error, const std::string& what);
/// With the library's own explanation (ncclGetLastError). `comm` may be null.
Outcome checkNccl(ncclResult_t result, const std::string& what, ncclComm_t comm = nullptr);

/// Memory of the current device.
class DeviceBuffer {
 public:
  enum class Source { cuda, nccl };

  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBuffer();

  /// At least one byte. `nccl` takes it from ncclMemAlloc, which peers can map.
  static Outcome allocate(Source source, size_t bytes, DeviceBuffer& buffer);
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void swap(DeviceBuffer& other) noexcept {
    std::swap(source_, other.source_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  Source source_ = Source::cuda;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

/// A stream of the current device; the null stream when `null` is asked for.
class Stream {
 public:
  Stream() = default;
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~Stream();

  static Outcome create(bool null, Stream& stream);
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// What is captured on one stream, to be launched there.
class StreamGraph {
 public:
  StreamGraph() = default;
  StreamGraph(const StreamGraph&) = delete;
  StreamGraph& operator=(const StreamGraph&) = delete;
  ~StreamGraph();

  /// From here on, what this thread enqueues on the stream goes into the graph.
  Outcome begin(cudaStream_t stream);
  Outcome end();
  Outcome launch() const;

 private:
  cudaStream_t stream_ = nullptr;
  bool capturing_ = false;
  cudaGraphExec_t exec_ = nullptr;
};

/// Events that mark the ends of iterations on one stream.
class EventList {
 public:
  EventList() = default;
  EventList(const EventList&) = delete;
  EventList& operator=(const EventList&) = delete;
  ~EventList();

  Outcome create(size_t count);
  Outcome record(size_t index, cudaStream_t stream);
  /// From event index to event index + 1; both have happened.
  Outcome secondsBetween(size_t index, double& seconds) const;

 private:
  std::vector<cudaEvent_t> events_;
};

}  // namespace tutti::perf
