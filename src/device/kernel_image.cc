#include "device/kernel_image.h"

#if defined(TUTTI_GPU_KERNELS)
// kernel_image.S
extern "C" const std::byte tuttiKernelImage[];
extern "C" const std::byte tuttiKernelImageEnd[];
#endif

namespace tutti::device {

std::span<const std::byte> embeddedKernels() {
#if defined(TUTTI_GPU_KERNELS)
  return {tuttiKernelImage, tuttiKernelImageEnd};
#else
  return {};
#endif
}

}  // namespace tutti::device
