// Ranks on virtual GPUs, without a library around them: the memory that kernels share, and launches.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/device_program.h"
#include "base/kernel_shim/abi.h"
#include "device/kernel_table.h"
#include "device/kernels/program_text.h"

namespace tutti::device {

/// For tests that run once a protocol.
std::string nameOf(const testing::TestParamInfo<Protocol>& info);

/// Zeroed memory of a virtual GPU, which the host sees too.
class DeviceBytes {
 public:
  explicit DeviceBytes(size_t bytes);
  explicit DeviceBytes(const std::vector<std::byte>& contents);
  ~DeviceBytes() { cudaFree(data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
};

struct RigShape {
  int32_t ranks = 2;
  uint32_t channels = 1;
  uint64_t slotBytes = 4096;
  uint64_t scratchHalfBytes = 8192;
  uint32_t threads = 64;
};

/// Every rank is connected with every other on all channels and ports 0 and 1.
class Rig {
 public:
  explicit Rig(RigShape shape);
  ~Rig();
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  const RigShape& shape() const { return shape_; }
  Comm& comm(int32_t rank) { return *comms_[static_cast<size_t>(rank)]->as<Comm>(); }
  Report& report(int32_t rank) { return *reports_[static_cast<size_t>(rank)]->as<Report>(); }
  std::byte* segment(int32_t rank) { return segments_[static_cast<size_t>(rank)]->data(); }
  ChannelState& channelState(int32_t rank, uint32_t channel);
  void abort();

  /// On the device; lives as long as the rig.
  const Program* upload(const ProgramText& text);
  /// A call of one block of data and as many slices as `sliceElements` asks for.
  Call call(const Program* program, const void* input, void* output, uint64_t count, uint64_t sliceElements,
            uint32_t elementBytes) const;
  /// All calls are heads.
  LaunchArguments arguments(int32_t rank, std::vector<Call> calls);
  void launch(int32_t rank, const shim::KernelTwin* kernel, const LaunchArguments& arguments, uint32_t blocks,
              uint32_t links = 8);
  void launch(int32_t rank, ncclDataType_t type, Protocol protocol, const Call& call, uint32_t links = 8);
  /// What cudaDeviceSynchronize says.
  cudaError_t synchronize();

 private:
  std::byte* keep(size_t bytes);
  RigShape shape_;
  std::vector<std::unique_ptr<DeviceBytes>> kept_;
  std::vector<std::unique_ptr<DeviceBytes>> segments_;
  std::vector<std::unique_ptr<DeviceBytes>> comms_;
  std::vector<std::unique_ptr<DeviceBytes>> reports_;
  std::unique_ptr<DeviceBytes> abort_;
  std::vector<cudaStream_t> streams_;
};

}  // namespace tutti::device
