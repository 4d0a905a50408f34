#include "core/last_error.h"

#include "base/thread_object.h"

namespace tutti {
namespace {
struct Texts {
  std::string lastError;
  std::string communicatorFailure;
};
}  // namespace

void rememberError(const Status& status) { threadObject<Texts>().lastError = status.message(); }
const char* lastErrorText() { return threadObject<Texts>().lastError.c_str(); }

const char* keepFailureText(const Status& failure) {
  // The same text again keeps its place, so that pointers returned before stay valid.
  std::string& text = threadObject<Texts>().communicatorFailure;
  if (text != failure.message()) text = failure.message();
  return text.c_str();
}

}  // namespace tutti
