#include "core/api_boundary.h"

#include <exception>

#include "base/log.h"
#include "core/group.h"
#include "core/last_error.h"

namespace tutti {

ncclResult_t reportFailure(const char* function, const Status& status) noexcept {
  if (status.code() == ncclInProgress) return ncclInProgress;  // no failure, though no end either
  try {
    const Status full = status.withContext("{}", function);
    logWarn("{}", full.message());
    rememberError(full);
    Group::ofThisThread().latch(full);
  } catch (const std::exception&) {
    // Out of memory while telling of an error: the code still gets through.
  }
  return status.code();
}

Status notServed(const char* function) {
  return invalidUsage(
      "{} is declared for programs that compile against NCCL 2.28, but this release of Tutti does not serve "
      "it yet",
      function);
}

}  // namespace tutti
