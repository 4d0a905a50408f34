// What ncclGetLastError answers.
#pragma once

#include <string>

#include "base/status.h"

namespace tutti {

/// Keeps the message of this thread's last failed call. Returned text stays valid until the thread's next
/// failure.
void rememberError(const Status& status);
const char* lastErrorText();

/// Keeps the message of a communicator's failure for this thread, apart from that of the thread's last failed
/// call: what was returned for one stays valid when the other is asked for.
const char* keepFailureText(const Status& failure);

}  // namespace tutti
