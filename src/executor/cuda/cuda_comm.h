// A rank's device::Comm on its device: the tables of its connections, and the host memory in which kernels
// look for an abort and report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/device_program.h"
#include "base/status.h"
#include "device/driver.h"
#include "executor/cuda/cuda_memory.h"
#include "transport/p2p/device_group.h"

namespace tutti {

class CudaComm {
 public:
  CudaComm(DeviceGroup& group, int rank, CudaMemory& memory) : group_(group), rank_(rank), memory_(memory) {}

  Status create();
  const device::Comm* onDevice() const { return onDevice_; }
  /// As on the device, for its sizes.
  const device::Comm& onHost() const { return comm_; }

  /// Makes the connections that the program has on the first `channels` channels, and tells the device those
  /// that are new. To be called before the launch that needs them; entries that running kernels use do not
  /// change.
  Status connect(const device::Program& program, uint32_t channels);

  // Thread-safe:
  void abort();
  bool aborted() const;
  Status reportedError() const;
  std::vector<device::Position> positions() const;

 private:
  template <typename End>
  Status upload(std::vector<End>& ends, const End* table, std::vector<size_t>& changed);

  DeviceGroup& group_;
  const int rank_;
  CudaMemory& memory_;
  device::Comm comm_;
  device::Comm* onDevice_ = nullptr;
  uint32_t* abortFlag_ = nullptr;
  device::Report* report_ = nullptr;
  std::vector<device::Sender> senders_;  // as on the device
  std::vector<device::Receiver> receivers_;
  std::vector<size_t> changedSenders_;  // that the device does not know yet
  std::vector<size_t> changedReceivers_;
};

/// "channel 0 lane 1 slice 3 step 2 waits for data from rank 5".
std::string toText(const device::Position& position);

}  // namespace tutti
