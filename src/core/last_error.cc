#include "core/last_error.h"

namespace tutti {
namespace {
thread_local std::string threadLastError;
thread_local std::string threadCommunicatorFailure;
}  // namespace

void rememberError(const Status& status) { threadLastError = status.message(); }
const char* lastErrorText() { return threadLastError.c_str(); }

const char* keepFailureText(const Status& failure) {
  // The same text again keeps its place, so that pointers returned before stay valid.
  if (threadCommunicatorFailure != failure.message()) threadCommunicatorFailure = failure.message();
  return threadCommunicatorFailure.c_str();
}

}  // namespace tutti
