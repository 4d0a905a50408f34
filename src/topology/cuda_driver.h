// The CUDA driver: what a GPU can do, for machines whose NVML does not say it (Jetson, WSL). Opened at run
// time.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "topology/device_facts.h"
#include "topology/dynamic_library.h"

namespace tutti {

/// Functions of libcuda.so.1; all results are CUresult, 0 for success.
struct CudaDriverApi {
  int (*init)(unsigned flags) = nullptr;
  int (*deviceCount)(int* count) = nullptr;
  int (*deviceByIndex)(int* device, int index) = nullptr;
  int (*attribute)(int* value, int attribute, int device) = nullptr;
  int (*busId)(char* text, int bytes, int device) = nullptr;
};

constexpr int kCudaMajor = 75;           // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int kCudaMinor = 76;           // ..._MINOR
constexpr int kCudaGpuDirectRdma = 116;  // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED

/// Starting the driver takes long and does not survive a fork: a library that is part of somebody's program
/// only uses one that the program has loaded (If::loaded).
Result<CudaDriverApi> openCudaDriver(DynamicLibrary::If condition, const std::string& file = "libcuda.so.1");

/// Asks for all GPUs that this process sees (CUDA_VISIBLE_DEVICES): their address, number, compute capability
/// and GPUDirect RDMA. What cannot be found out goes into `notes`.
std::vector<GpuFacts> readCudaDriver(const CudaDriverApi& cuda, std::vector<std::string>* notes);

}  // namespace tutti
