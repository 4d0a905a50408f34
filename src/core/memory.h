// ncclMemAlloc: memory that peers can map; and waiting for a stream.
#pragma once

#include <cstddef>

#include "base/status.h"

namespace tutti {

/// `bytes` zeroed bytes on the current device, at least 4096-byte aligned, in a memory file. Zero bytes give
/// null.
Status allocateMemory(void** pointer, size_t bytes);
/// Null is fine. An error when the pointer did not come from allocateMemory (or the runtime's cudaMalloc).
Status freeMemory(void* pointer);

/// Blocks until the stream's work so far is done.
Status synchronizeStream(cudaStream_t stream);

}  // namespace tutti
