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
};

struct Fill {
  std::byte* dst = nullptr;
  size_t pitch = 0;
  size_t slice = 0;
  int value = 0;
  size_t width = 0;
  size_t height = 1;
  size_t depth = 1;
};

/// Whether the call returns only when the work is done.
enum class Wait : bool { no, yes };

cudaError_t submitCopy(cudaStream_t stream, const Copy& copy, cudaMemcpyKind kind, Wait wait);
cudaError_t submitFill(cudaStream_t stream, const Fill& fill, Wait wait);

}  // namespace tutti::hostrt
