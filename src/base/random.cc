#include "base/random.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace tutti {
namespace {

bool fromDevice(unsigned char* at, size_t bytes) {
  const int fd = ::open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  while (bytes > 0) {
    const ssize_t got = ::read(fd, at, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  ::close(fd);
  return bytes == 0;
}

}  // namespace

bool tryRandomBytes(void* buffer, size_t bytes) {
  auto* at = static_cast<unsigned char*>(buffer);
  while (bytes > 0) {
    const ssize_t got = ::getrandom(at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fromDevice(at, bytes);
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace tutti
