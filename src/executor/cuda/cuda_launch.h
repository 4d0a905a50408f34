// A launch in the making: calls as kernels take them, and the arguments that carry them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/device_program.h"
#include "base/status.h"
#include "executor/cuda/cuda_executor.h"
#include "executor/cuda/cuda_program.h"

namespace tutti {

struct CudaLaunch {
  std::vector<device::Call> calls;
  uint32_t heads = 0;
  uint32_t blocks = 0;
  uint32_t mostLinks = 0;  // of a lane
  size_t blockBytes = 0;   // that the busiest block moves, about
  size_t sliceBytes = 0;
  ncclDataType_t type = ncclInt8;
  device::Protocol protocol = device::Protocol::simple;
  std::vector<uint64_t> blockSizes;  // of calls[0]: counts, then offsets; empty where blocks are equal
};

/// Adds the call, which has blocks of the grid neither of its own nor of a chain yet. Errors: the schedule is
/// not made for the call's shape, or does not fit the communicator's slots and scratch.
Status addCall(const CudaCall& call, const CudaProgram& program, const device::Comm& comm,
               CudaLaunch* launch);

/// Bytes of what the arguments have no room for.
size_t longBytes(const CudaLaunch& launch);
/// Those bytes, which will lie at `at`, and the arguments that refer to them.
std::vector<std::byte> packLong(CudaLaunch& launch, std::byte* at, device::LaunchArguments* arguments);

}  // namespace tutti
