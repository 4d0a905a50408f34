#include "base/socket.h"

#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/params.h"

namespace tutti {
namespace {

/// How long a wait may go without looking at the fault state.
constexpr int kSliceMs = 20;

Status checkWait(Deadline deadline, const FaultState* faults) {
  if (faults != nullptr && faults->stopped()) return faults->error();
  if (deadline.passed()) return {ncclSystemError, "timed out"};
  return Status::ok();
}

void setInt(int fd, int level, int option, int value) {
  // Best effort: an option that a kernel does not know changes speed or detection, not correctness.
  (void)::setsockopt(fd, level, option, &value, sizeof value);
}

bool isTransient(int error) {
  return error == ECONNREFUSED || error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
         error == ECONNRESET || error == EAGAIN || error == EADDRNOTAVAIL;
}

Result<UniqueFd> newSocket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return systemError(errno, "create a socket");
  return fd;
}

/// One attempt. The errno of a failure is left in `error`.
Result<UniqueFd> connectOnce(const SocketAddress& address, Deadline deadline, const FaultState* faults,
                             int& error) {
  error = 0;
  UniqueFd fd;
  if (auto started = startConnect(address); started.isOk()) {
    fd = std::move(*started);
  } else {
    error = errno;
    return started.status();
  }
  TUTTI_TRY(waitFor(fd.get(), POLLOUT, deadline, faults).withContext("connect to {}", address.text()));
  error = connectError(fd.get());
  if (error != 0) return systemError(error, "connect to {}", address.text());
  // TCP can connect a socket to itself when the target is a free port of this machine in the ephemeral range.
  if (address.family() != AF_UNIX && localAddress(fd.get()) == peerAddress(fd.get())) {
    error = ECONNREFUSED;
    return systemError(error, "connect to {}", address.text());
  }
  tuneConnection(fd.get());
  return fd;
}

}  // namespace

Result<UniqueFd> listenOn(const SocketAddress& address, int backlog, bool dualStack) {
  TUTTI_ASSIGN(UniqueFd fd, newSocket(address.family()));
  setInt(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == AF_INET6) setInt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, dualStack ? 0 : 1);
  if (::bind(fd.get(), address.data(), address.length()) != 0)
    return systemError(errno, "bind {}", address.text());
  if (::listen(fd.get(), backlog) != 0) return systemError(errno, "listen on {}", address.text());
  return fd;
}

SocketAddress localAddress(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return SocketAddress::from(reinterpret_cast<sockaddr*>(&storage), length);
}

SocketAddress peerAddress(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return SocketAddress::from(reinterpret_cast<sockaddr*>(&storage), length);
}

Result<UniqueFd> acceptFrom(int listener) {
  for (;;) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      tuneConnection(fd.get());
      return fd;
    }
    switch (errno) {
      case EINTR:
        continue;
      case EAGAIN:
      // Errors of the connection that was waiting, not of the listener (accept(2), "Error handling").
      case ECONNABORTED:
      case EPROTO:
      case ENETDOWN:
      case ENOPROTOOPT:
      case EHOSTDOWN:
      case ENONET:
      case EHOSTUNREACH:
      case EOPNOTSUPP:
      case ENETUNREACH:
      case EPERM:
        return UniqueFd();
      default:
        return systemError(errno, "accept on {}", localAddress(listener).text());
    }
  }
}

Result<UniqueFd> startConnect(const SocketAddress& address) {
  if (!address.isValid()) return invalidArgument("connect: no address");
  TUTTI_ASSIGN(UniqueFd fd, newSocket(address.family()));
  // EINTR: the connection goes on by itself (connect(2)).
  if (::connect(fd.get(), address.data(), address.length()) != 0 && errno != EINPROGRESS && errno != EINTR) {
    const int error = errno;
    Status status = systemError(error, "connect to {}", address.text());
    fd.reset();
    errno = error;
    return status;
  }
  return fd;
}

int connectError(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

RetryPolicy RetryPolicy::fromParams() {
  return {params().socketRetryCnt(), params().socketRetrySleepMsec(), false};
}

Result<UniqueFd> connectTo(const SocketAddress& address, Deadline deadline, const FaultState* faults,
                           RetryPolicy retry) {
  for (int64_t attempt = 0;; ++attempt) {
    int error = 0;
    auto fd = connectOnce(address, deadline, faults, error);
    if (fd.isOk() || !isTransient(error)) return fd;
    if (!retry.untilDeadline && attempt >= retry.retries) {
      return std::move(fd).withContext("after {} tries", attempt + 1);
    }
    if (Status status = sleepFor(std::min<int64_t>(retry.pauseMs * (attempt + 1), 2000), deadline, faults);
        !status.isOk())
      return fd.status().withContext("{} after {} tries", status.message(), attempt + 1);
  }
}

Status sleepFor(int64_t milliseconds, Deadline deadline, const FaultState* faults) {
  const Deadline end = Deadline::after(std::chrono::milliseconds(milliseconds));
  while (!end.passed()) {
    TUTTI_TRY(checkWait(deadline, faults));
    std::this_thread::sleep_for(
        std::chrono::milliseconds(std::min(end.pollTimeoutMs(kSliceMs), deadline.pollTimeoutMs(kSliceMs))));
  }
  return checkWait(deadline, faults);
}

void tuneConnection(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0 || storage.ss_family == AF_UNIX)
    return;
  setInt(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // Whether a host has vanished: on an idle connection keepalive asks, with data under way the
  // retransmissions do. Both give up after TUTTI_PEER_TIMEOUT without any answer (for keepalive the user
  // time-out counts, too).
  const int64_t limit = params().peerTimeout();  // ms
  if (limit == 0) return;
  const int seconds = static_cast<int>(std::max<int64_t>(limit / 1000, 1));
  setInt(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  setInt(fd, IPPROTO_TCP, TCP_KEEPIDLE, std::clamp(seconds * 2 / 5, 1, 30));
  setInt(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::clamp(seconds / 6, 1, 10));
  setInt(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
  setInt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(limit));
  // After an interruption of a few seconds the pauses between retransmissions have grown as long: at most
  // this long, so that the job goes on soon after the link is back. Linux 6.15 and later.
#ifndef TCP_RTO_MAX_MS
  constexpr int TCP_RTO_MAX_MS = 44;
#endif
  setInt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, 1000);
}

Status waitFor(int fd, short events, Deadline deadline, const FaultState* faults) {
  for (;;) {
    TUTTI_TRY(checkWait(deadline, faults));
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, deadline.pollTimeoutMs(faults != nullptr ? kSliceMs : 1000));
    if (ready > 0)
      return Status::ok();  // an error or hang-up counts: the next call on the socket tells which
    if (ready < 0 && errno != EINTR) return systemError(errno, "poll");
  }
}

Status sendAll(int fd, std::string_view bytes, Deadline deadline, const FaultState* faults) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      TUTTI_TRY(waitFor(fd, POLLOUT, deadline, faults).withContext("send to {}", peerAddress(fd).text()));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return remoteError("send: the peer closed the connection ({})", ::strerrordesc_np(errno));
    } else if (errno != EINTR) {
      return systemError(errno, "send to {}", peerAddress(fd).text());
    }
  }
  return Status::ok();
}

Status receiveAll(int fd, void* buffer, size_t bytes, Deadline deadline, const FaultState* faults) {
  auto* at = static_cast<char*>(buffer);
  while (bytes > 0) {
    const ssize_t got = ::recv(fd, at, bytes, MSG_DONTWAIT);
    if (got > 0) {
      at += got;
      bytes -= static_cast<size_t>(got);
    } else if (got == 0 || errno == ECONNRESET) {
      return remoteError("receive: the peer closed the connection{}", got == 0 ? "" : " (reset)");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      TUTTI_TRY(waitFor(fd, POLLIN, deadline, faults).withContext("receive from {}", peerAddress(fd).text()));
    } else if (errno != EINTR) {
      return systemError(errno, "receive from {}", peerAddress(fd).text());
    }
  }
  return Status::ok();
}

}  // namespace tutti
