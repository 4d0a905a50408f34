// Work of non-blocking calls, on threads of their own.
#pragma once

#include <functional>
#include <vector>

#include "base/status.h"

namespace tutti {

/// Runs `work` on a new thread. Nobody waits for its end; at exit it ends with the process.
Status runInBackground(std::function<void()> work);

/// Runs all functions at once, the first on the calling thread; returns when all have ended. When a thread
/// cannot be made, `cancel` is called so that the others come to an end, and the error returned; functions
/// without thread are not run.
Status runTogether(const std::vector<std::function<void()>>& functions,
                   const std::function<void(const Status& why)>& cancel);

}  // namespace tutti
