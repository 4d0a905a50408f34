// What every entry point does around its body.
#pragma once

#include <utility>

#include "base/status.h"
#include "core/api_boundary.h"

namespace tutti {

/// Runs `body` (a function returning Status), logs and remembers a failure under the function's name, and
/// gives the code to C. Nothing is thrown past it.
template <typename Body>
ncclResult_t entry(const char* function, Body&& body) noexcept {
  const Status status = statusOf(std::forward<Body>(body));
  return status.isOk() ? ncclSuccess : reportFailure(function, status);
}

}  // namespace tutti

// Entry points are defined as pncclX, with ncclX as a weak alias: a profiler that defines ncclX itself and
// calls pncclX takes the call over. Aliases need literal symbol names, hence the macro.
#define TUTTI_WEAK_ALIAS(name) __attribute__((weak, alias("pnccl" #name)))
