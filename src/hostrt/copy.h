// Copies and fills of up to three dimensions, in a stream's order.
#pragma once

#include <cstddef>

#include "hostrt/api.h"

namespace tutti::hostrt {

/// depth slices of height rows of width bytes; rows start pitch bytes apart, slices slice bytes.
struct Copy {
  std::byte* dst = nullptr;
  size_t dstPitch = 0;
  size_t dstSlice = 0;
  const std::byte* src = nullptr;
  size_t srcPitch = 0;
  size_t srcSlice = 0;
  size_t width = 0;
  size_t height = 1;
  size_t depth = 1;
  cudaMemcpyKind kind = cudaMemcpyDefault;
};

/// Elements of 1, 2 or 4 bytes, in rows of `width` bytes.
struct Fill {
  std::byte* dst = nullptr;
  size_t pitch = 0;
  size_t slice = 0;
  unsigned int value = 0;
  unsigned int elementBytes = 1;
  size_t width = 0;
  size_t height = 1;
  size_t depth = 1;
};

/// Whether the call returns only when the work is done.
enum class Wait : bool { no, yes };

/// What is wrong with a copy or fill, for calls that run it later.
cudaError_t checkCopy(const Copy& copy, cudaMemcpyKind kind);
cudaError_t checkFill(const Fill& fill);
void runCopy(const Copy& copy);
void runFill(const Fill& fill);

/// The copy that a cudaMemcpy3DParms describes; an error for arrays, which do not exist here.
cudaError_t copyOf(const cudaMemcpy3DParms* parameters, Copy* copy);

cudaError_t submitCopy(cudaStream_t stream, const Copy& copy, cudaMemcpyKind kind, Wait wait);
cudaError_t submitFill(cudaStream_t stream, const Fill& fill, Wait wait);

}  // namespace tutti::hostrt
