// What ncclGetLastError answers.
#pragma once

#include <string>

#include "base/status.h"

namespace tutti {

/// Keeps the message of this thread's last failed call. Returned text stays valid until the thread's next
/// failure.
void rememberError(const Status& status);
const char* lastErrorText();

}  // namespace tutti
