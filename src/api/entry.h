// What every entry point does around its body.
#pragma once

#include <exception>
#include <new>

#include "base/status.h"
#include "core/api_boundary.h"

namespace tutti {

/// Runs `body` (a function returning Status), logs and remembers a failure under the function's name, and
/// gives the code to C. Nothing is thrown past it.
template <typename Body>
ncclResult_t entry(const char* function, Body&& body) noexcept {
  Status status;
  try {
    status = body();
  } catch (const std::bad_alloc&) {
    status = Status(ncclSystemError, "out of memory");
  } catch (const std::exception& error) {
    status = Status(ncclInternalError, error.what());
  }
  return status.isOk() ? ncclSuccess : reportFailure(function, status);
}

}  // namespace tutti

// Entry points are defined as pncclX, with ncclX as a weak alias: a profiler that defines ncclX itself and
// calls pncclX takes the call over. Aliases need literal symbol names, hence the macro.
#define TUTTI_WEAK_ALIAS(name) __attribute__((weak, alias("pnccl" #name)))
