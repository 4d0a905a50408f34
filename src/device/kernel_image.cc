#include "device/kernel_image.h"

#if defined(TUTTI_KERNEL_IMAGE)
// The assembler reads the file; cuModuleLoadData wants it aligned.
asm(R"(
    .pushsection .rodata
    .balign 64
    .hidden tuttiKernelImage
    .globl tuttiKernelImage
tuttiKernelImage:
    .incbin ")" TUTTI_KERNEL_IMAGE R"("
    .hidden tuttiKernelImageEnd
    .globl tuttiKernelImageEnd
tuttiKernelImageEnd:
    .popsection
)");
extern "C" __attribute__((visibility("hidden"))) const std::byte tuttiKernelImage[];
extern "C" __attribute__((visibility("hidden"))) const std::byte tuttiKernelImageEnd[];
#endif

namespace tutti::device {

std::span<const std::byte> embeddedKernels() {
#if defined(TUTTI_KERNEL_IMAGE)
  return {tuttiKernelImage, tuttiKernelImageEnd};
#else
  return {};
#endif
}

}  // namespace tutti::device
