#include "topology/cuda_driver.h"

#include <array>

namespace tutti {

Result<CudaDriverApi> openCudaDriver(DynamicLibrary::If condition, const std::string& file) {
  TUTTI_ASSIGN(const DynamicLibrary library, DynamicLibrary::open(file, condition));
  CudaDriverApi cuda;
  TUTTI_TRY(library.require("cuInit", &cuda.init));
  TUTTI_TRY(library.require("cuDeviceGetCount", &cuda.deviceCount));
  TUTTI_TRY(library.require("cuDeviceGet", &cuda.deviceByIndex));
  TUTTI_TRY(library.require("cuDeviceGetAttribute", &cuda.attribute));
  TUTTI_TRY(library.require("cuDeviceGetPCIBusId", &cuda.busId));
  return cuda;
}

std::vector<GpuFacts> readCudaDriver(const CudaDriverApi& cuda, std::vector<std::string>* notes) {
  std::vector<GpuFacts> gpus;
  int count = 0;
  int error = cuda.init(0);
  if (error == 0) error = cuda.deviceCount(&count);
  if (error != 0) {
    notes->push_back(fmt::format("the CUDA driver does not start: error {}", error));
    return gpus;
  }
  for (int index = 0; index < count; ++index) {
    int device = 0;
    std::array<char, 32> text{};
    if (cuda.deviceByIndex(&device, index) != 0 ||
        cuda.busId(text.data(), static_cast<int>(text.size()) - 1, device) != 0)
      continue;
    const auto busId = parseBusId(text.data());
    if (!busId) continue;
    GpuFacts gpu;
    gpu.busId = *busId;
    gpu.dev = index;
    int major = 0, minor = 0, rdma = 0;
    if (cuda.attribute(&major, kCudaMajor, device) == 0 && cuda.attribute(&minor, kCudaMinor, device) == 0 &&
        major > 0 && major < 100 && minor >= 0 && minor < 10)
      gpu.sm = major * 10 + minor;
    if (cuda.attribute(&rdma, kCudaGpuDirectRdma, device) == 0) gpu.gdr = rdma != 0 ? 1 : 0;
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

}  // namespace tutti
