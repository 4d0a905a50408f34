#include "base/status.h"

#include <sys/resource.h>

#include <cerrno>
#include <exception>
#include <new>

namespace tutti {
namespace {

/// "RLIMIT_X, ulimit -y, is 64", in units of `unit`; empty when there is no limit.
std::string limitText(__rlimit_resource resource, const char* name, rlim_t unit, const char* unitName) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return fmt::format("{}, is {}{}", name, limit.rlim_cur / unit, unitName);
}
std::string addressSpaceLimit() { return limitText(RLIMIT_AS, "RLIMIT_AS, ulimit -v", 1 << 20, " MiB"); }

}  // namespace

std::string errnoText(int error) {
  const char* const description = ::strerrordesc_np(error);
  std::string text = description != nullptr ? description : "unknown error";
  if (error == EMFILE) {
    text += fmt::format(" (limit of this process: {})",
                        limitText(RLIMIT_NOFILE, "RLIMIT_NOFILE, ulimit -n", 1, ""));
  } else if (error == ENFILE) {
    text += " (limit of this machine: /proc/sys/fs/file-max)";
  } else if (const std::string limit = addressSpaceLimit(); error == ENOMEM && !limit.empty()) {
    text += fmt::format(" (limit of this process: {})", limit);
  }
  return text;
}

Status threadError(int error, const char* what) {
  if (error != EAGAIN) return systemError(error, "{}", what);
  std::string limits = limitText(RLIMIT_NPROC, "RLIMIT_NPROC, ulimit -u", 1, " for all of this user");
  if (const std::string limit = addressSpaceLimit(); !limit.empty())
    limits += (limits.empty() ? "" : "; ") + limit;
  if (!limits.empty()) limits += "; ";
  return systemError(error, "{}: the limit of threads or memory is reached ({}a container may have its own)",
                     what, limits);
}

namespace detail {

Status currentException() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return systemError(ENOMEM, "out of memory");
  } catch (const std::exception& error) {
    return {ncclInternalError, error.what()};
  } catch (...) {
    return {ncclInternalError, "unknown exception"};
  }
}

}  // namespace detail
}  // namespace tutti
