#include "core/last_error.h"

namespace tutti {
namespace {
thread_local std::string threadLastError;
}  // namespace

void rememberError(const Status& status) { threadLastError = status.message(); }
const char* lastErrorText() { return threadLastError.c_str(); }

}  // namespace tutti
