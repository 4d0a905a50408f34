#include "base/memory_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/random.h"
#include "base/socket.h"

namespace tutti {
namespace {

Result<size_t> roundToPages(size_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  if (bytes == 0) return invalidArgument("memory file of 0 bytes");
  if (bytes > SIZE_MAX / 2) return invalidArgument("memory file of {} bytes", bytes);
  return (bytes + page - 1) / page * page;
}

Status resize(int fd, size_t bytes) {
  while (::ftruncate(fd, static_cast<off_t>(bytes)) != 0)
    if (errno != EINTR) return systemError(errno, "memory file: grow to {} bytes", bytes);
  return Status::ok();
}

Status checkSize(int fd, size_t expected, struct stat& info) {
  if (::fstat(fd, &info) != 0) return systemError(errno, "memory file: fstat");
  if (!S_ISREG(info.st_mode)) return remoteError("memory file: the descriptor received is no memory file");
  if (static_cast<uint64_t>(info.st_size) != expected)
    return remoteError("memory file: has {} bytes, expected {}", info.st_size, expected);
  return Status::ok();
}

}  // namespace

MemoryFile& MemoryFile::operator=(MemoryFile&& other) noexcept {
  if (this == &other) return *this;
  reset();
  fd_ = std::move(other.fd_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  name_ = std::exchange(other.name_, {});
  return *this;
}

void MemoryFile::reset() {
  unlink();
  if (data_ != nullptr) ::munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
  fd_.reset();
}

void MemoryFile::unlink() {
  if (!name_.empty()) ::shm_unlink(name_.c_str());
  name_.clear();
}

Status MemoryFile::map(size_t bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (at == MAP_FAILED) return systemError(errno, "memory file: map {} bytes", bytes);
  data_ = static_cast<std::byte*>(at);
  size_ = bytes;
  return Status::ok();
}

Result<MemoryFile> MemoryFile::create(std::string_view name, size_t bytes) {
  TUTTI_ASSIGN(const size_t rounded, roundToPages(bytes));
  MemoryFile file;
  const std::string label(name.substr(0, 200));
  file.fd_.reset(::memfd_create(label.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.fd_) return systemError(errno, "memory file {}: memfd_create", label);
  TUTTI_TRY(resize(file.fd(), rounded).withContext("{}", label));
  if (::fcntl(file.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return systemError(errno, "memory file {}: seal its size", label);
  TUTTI_TRY(file.map(rounded).withContext("{}", label));
  return file;
}

Result<MemoryFile> MemoryFile::attach(UniqueFd fd, size_t expectedBytes) {
  TUTTI_ASSIGN(const size_t rounded, roundToPages(expectedBytes));
  MemoryFile file;
  file.fd_ = std::move(fd);
  // Seals first: once shrinking is impossible, the size that fstat gives is good for ever.
  const int seals = ::fcntl(file.fd(), F_GET_SEALS);
  if (seals < 0) return systemError(errno, "memory file: read the seals of a received descriptor");
  if ((seals & F_SEAL_SHRINK) == 0)
    return remoteError("memory file: a received file is not sealed against shrinking");
  struct stat info {};
  TUTTI_TRY(checkSize(file.fd(), rounded, info));
  TUTTI_TRY(file.map(rounded));
  return file;
}

Result<MemoryFile> MemoryFile::createNamed(size_t bytes) {
  TUTTI_ASSIGN(const size_t rounded, roundToPages(bytes));
  MemoryFile file;
  for (int attempt = 0; attempt < 16 && !file.fd_; ++attempt) {
    std::array<uint64_t, 2> random{};
    TUTTI_TRY(randomBytes(random.data(), sizeof random));
    const std::string name = fmt::format("/tutti-{:016x}{:016x}", random[0], random[1]);
    file.fd_.reset(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
    if (file.fd_) file.name_ = name;
    if (!file.fd_ && errno != EEXIST && errno != EINTR)
      return systemError(errno, "create segment /dev/shm{}", name);
  }
  if (!file.fd_) return internalError("create segment in /dev/shm: every random name was taken");
  TUTTI_TRY(resize(file.fd(), rounded).withContext("/dev/shm{}", file.name_));
  // Returns its error; a tmpfs that is full would otherwise show itself as SIGBUS at the first access.
  int error = 0;
  while ((error = ::posix_fallocate(file.fd(), 0, static_cast<off_t>(rounded))) == EINTR) continue;
  if (error != 0) return systemError(error, "reserve {} bytes in /dev/shm", rounded);
  TUTTI_TRY(file.map(rounded).withContext("/dev/shm{}", file.name_));
  return file;
}

Result<MemoryFile> MemoryFile::openNamed(const std::string& name, size_t expectedBytes) {
  TUTTI_ASSIGN(const size_t rounded, roundToPages(expectedBytes));
  if (!name.starts_with("/tutti-") || name.find('/', 1) != std::string::npos)
    return invalidArgument("segment name \"{}\" is not one of ours", name);
  MemoryFile file;
  file.fd_.reset(::shm_open(name.c_str(), O_RDWR, 0));
  if (!file.fd_) return systemError(errno, "open segment /dev/shm{}", name);
  struct stat info {};
  TUTTI_TRY(checkSize(file.fd(), rounded, info).withContext("/dev/shm{}", name));
  if (info.st_uid != ::geteuid())
    return remoteError("segment /dev/shm{} belongs to user {}, not to us ({})", name, info.st_uid,
                       ::geteuid());
  TUTTI_TRY(file.map(rounded).withContext("/dev/shm{}", name));
  return file;
}

Status sendDescriptor(int socket, int fd, std::string_view payload, Deadline deadline,
                      const FaultState* faults) {
  if (payload.empty()) return invalidArgument("a descriptor travels with at least one byte");
  iovec part{const_cast<char*>(payload.data()), payload.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  for (;;) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)  // the descriptor went with the first byte; the rest of the payload follows as plain bytes
      return sendAll(socket, payload.substr(static_cast<size_t>(sent)), deadline, faults);
    if (errno == EINTR) continue;
    if (errno == ETOOMANYREFS)
      return systemError(errno, "send descriptor: too many are in flight (raise the descriptor limit)");
    if (errno != EAGAIN && errno != EWOULDBLOCK) return systemError(errno, "send descriptor");
    TUTTI_TRY(waitFor(socket, POLLOUT, deadline, faults).withContext("send descriptor"));
  }
}

namespace {

/// Takes descriptors out of a received message; more than one is refused, and all are closed then.
Status takeDescriptors(msghdr& message, UniqueFd& fd) {
  bool tooMany = false;
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
      UniqueFd owned(received);
      if (fd) {
        tooMany = true;
      } else {
        fd = std::move(owned);
      }
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0)
    return systemError(EMFILE, "receive descriptor: the kernel dropped it");
  if (tooMany) return remoteError("receive descriptor: more than one came");
  return Status::ok();
}

}  // namespace

Result<ReceivedDescriptor> receiveDescriptor(int socket, size_t payloadBytes, Deadline deadline,
                                             const FaultState* faults) {
  if (payloadBytes == 0) return invalidArgument("a descriptor travels with at least one byte");
  ReceivedDescriptor result;
  result.payload.resize(payloadBytes);
  size_t done = 0;
  while (done < payloadBytes) {
    iovec part{result.payload.data() + done, payloadBytes - done};
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      TUTTI_TRY(waitFor(socket, POLLIN, deadline, faults).withContext("receive descriptor"));
      continue;
    }
    if (got < 0) return systemError(errno, "receive descriptor");
    TUTTI_TRY(takeDescriptors(message, result.fd));
    if (got == 0) return remoteError("receive descriptor: the peer closed the connection");
    done += static_cast<size_t>(got);
  }
  if (!result.fd) return remoteError("receive descriptor: the message came without one");
  return result;
}

}  // namespace tutti
