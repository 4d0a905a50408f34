#include "base/output_file.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/random.h"
#include "base/unique_fd.h"

namespace tutti {
namespace {

/// Where symbolic links lead; the path itself where there is no file yet.
std::string target(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), ::free);
  return real ? real.get() : path;
}

Status writeInto(const std::string& path, std::string_view text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) return systemError(errno, "open {}", path);
  if (const int error = writeWithoutSignal(file.get(), text); error != 0)
    return systemError(error, "write {} bytes to {}", text.size(), path);
  return Status::ok();
}

}  // namespace

int writeWithoutSignal(int fd, std::string_view text) {
  sigset_t pipe, before, pending;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigpending(&pending);
  const bool wasPending = sigismember(&pending, SIGPIPE) == 1;
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  int error = 0;
  while (!text.empty() && error == 0) {
    const ssize_t wrote = ::write(fd, text.data(), text.size());
    if (wrote > 0) {
      text.remove_prefix(static_cast<size_t>(wrote));
    } else if (wrote == 0 || errno != EINTR) {
      error = wrote == 0 ? EIO : errno;
    }
  }
  if (error == EPIPE && !wasPending) {
    const timespec zero{};
    while (::sigtimedwait(&pipe, nullptr, &zero) < 0 && errno == EINTR) continue;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

Status replaceFile(const std::string& path, std::string_view text) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
    return writeInto(path, text);
  const std::string final = target(path);
  uint64_t random = 0;
  TUTTI_TRY(randomBytes(&random, sizeof random));
  const std::string temporary = fmt::format("{}.{:016x}.tmp", final, random);
  {
    const UniqueFd file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!file) return systemError(errno, "create {}", temporary);
    if (const int error = writeWithoutSignal(file.get(), text); error != 0) {
      ::unlink(temporary.c_str());
      return systemError(error, "write {} bytes to {}", text.size(), temporary);
    }
  }
  if (::rename(temporary.c_str(), final.c_str()) == 0) return Status::ok();
  const int error = errno;
  ::unlink(temporary.c_str());
  return systemError(error, "rename {} to {}", temporary, final);
}

}  // namespace tutti
