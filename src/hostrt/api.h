// The runtime's own headers with exported declarations, and what every entry point does around its body.
#pragma once

#pragma GCC visibility push(default)
#include "cuda_profiler_api.h"
#include "cuda_runtime_api.h"
#pragma GCC visibility pop

#include <atomic>
#include <new>
#include <string_view>

namespace tutti::hostrt {

/// Makes `error` the calling thread's last error, unless it is success or "not ready" (which is an answer,
/// not an error), and returns it.
cudaError_t recordError(cudaError_t error);

/// True in a child of fork() whose parent used streams or memory: its worker threads do not exist here.
bool isUnusableFork();
/// Called once the process has state that a fork cannot carry over.
void watchForks();

/// Runs the body of an entry point: no exception leaves it, and its error becomes the thread's last error.
template <class Body>
cudaError_t apiCall(Body&& body) noexcept {
  if (isUnusableFork()) return recordError(cudaErrorInitializationError);
  try {
    return recordError(body());
  } catch (const std::bad_alloc&) {
    return recordError(cudaErrorMemoryAllocation);
  } catch (...) {
    return recordError(cudaErrorUnknown);
  }
}

}  // namespace tutti::hostrt
