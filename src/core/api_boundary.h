// The last stop of a failure before it becomes a plain ncclResult_t.
#pragma once

#include "base/status.h"

namespace tutti {

/// Logs the failure, keeps its text for ncclGetLastError, latches it in an open group; returns its code.
ncclResult_t reportFailure(const char* function, const Status& status) noexcept;

/// For entry points of later releases of the API that are declared but not served.
Status notServed(const char* function);

}  // namespace tutti
