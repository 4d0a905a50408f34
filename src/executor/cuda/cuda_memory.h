// What a CudaExecutor has of a device: memory and events, which all live as long as it.
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "device/driver.h"

namespace tutti {

/// Owner of all of it. Nothing is given back before the end: drivers' functions that free may wait for
/// kernels, and kernels wait for each other.
class CudaMemory {
 public:
  CudaMemory(Driver& driver, int device) : driver_(driver), device_(device) {}
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  /// Zeroed.
  Result<std::byte*> allocate(size_t bytes);
  Result<std::byte*> allocateHost(size_t bytes);
  Result<DeviceEvent> createEvent();
  Status upload(void* destination, const void* source, size_t bytes) {
    return driver_.copyToDevice(device_, destination, source, bytes);
  }
  /// Leaves everything to the process: a kernel may still use it.
  void abandon() { abandoned_ = true; }

 private:
  Driver& driver_;
  const int device_;
  bool abandoned_ = false;
  std::vector<std::byte*> memory_;
  std::vector<std::byte*> hostMemory_;
  std::vector<DeviceEvent> events_;
};

/// Small pieces of device memory that launches read their longer arguments from. A piece is used again once
/// its launch has ended; one of a captured launch belongs to the graph, which may run as long as the executor
/// lives.
class LaunchMemory {
 public:
  LaunchMemory(Driver& driver, int device, CudaMemory& memory)
      : driver_(driver), device_(device), memory_(memory) {}

  struct Piece {
    std::byte* memory = nullptr;
    size_t bytes = 0;
    DeviceEvent event = nullptr;
    bool isTaken = false;  // until its launch was enqueued, or for ever
    bool isUsed = false;   // until the event is done
  };
  /// Index of a piece of at least so many bytes.
  Result<size_t> take(size_t bytes);
  std::byte* at(size_t piece) const { return pieces_[piece].memory; }
  /// The launch that reads it was enqueued: captured, or on `stream`.
  Status launched(size_t piece, bool captured, DeviceStream stream);
  /// There was no launch.
  void giveBack(size_t piece) { pieces_[piece].isTaken = false; }
  size_t pieces() const { return pieces_.size(); }

 private:
  Driver& driver_;
  const int device_;
  CudaMemory& memory_;
  std::vector<Piece> pieces_;
};

}  // namespace tutti
