#include "transport/doorbell.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/random.h"
#include "base/socket.h"

namespace tutti {
namespace {

// Shared futexes (without FUTEX_PRIVATE_FLAG): the word lies in memory that several processes map.
long futex(std::atomic<uint32_t>* word, int operation, uint32_t value, const timespec* limit) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  return ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value, limit, nullptr, 0);
}

timespec inMicros(uint32_t micros) {
  return {static_cast<time_t>(micros / 1000000U), static_cast<long>(micros % 1000000U) * 1000L};
}

/// The line lies in memory that others write, too.
SocketAddress addressOf(const char* line) {
  return SocketAddress::abstractUnix({line, ::strnlen(line, Doorbell::kLineBytes)});
}

/// What bytes for lines are sent from. One for the process, for as long as it lives: a wake-up must not cost
/// three system calls.
int lineSocket() {
  static const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  return socket;
}

}  // namespace

uint32_t Doorbell::prepare() {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
#if !defined(__SANITIZE_THREAD__)
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the fence in ring()
#endif
  return sequence.load(std::memory_order_acquire);
}

void Doorbell::finish() { sleepers.fetch_sub(1, std::memory_order_relaxed); }

// In both kinds of sleep: the count is raised, then the sequence looked at (by the kernel, for a futex);
// wake() changes the sequence, then looks at the counts. All four are sequentially consistent, so one sees
// the other. Every outcome (woken, value changed, time-out, signal) means "look again" to the caller.

void Doorbell::sleep(uint32_t ticket, uint32_t limitMicros) {
  const timespec limit = inMicros(limitMicros);
  inFutex.fetch_add(1, std::memory_order_seq_cst);
  futex(&sequence, FUTEX_WAIT, ticket, &limit);
  inFutex.fetch_sub(1, std::memory_order_relaxed);
}

void Doorbell::sleepPolling(uint32_t ticket, uint32_t limitMicros, int ownLine, int descriptor) {
  const timespec limit = inMicros(limitMicros);
  inPoll.fetch_add(1, std::memory_order_seq_cst);
  if (sequence.load(std::memory_order_seq_cst) == ticket) {
    std::array<pollfd, 2> watched{{{ownLine, POLLIN, 0}, {descriptor, POLLIN, 0}}};
    ::ppoll(watched.data(), watched.size(), &limit, nullptr);
    // Bytes that come later, of rings that are seen without them, cost the next sleep.
    char bytes[64];
    if (watched[0].revents != 0)
      while (::recv(ownLine, bytes, sizeof bytes, MSG_DONTWAIT) >= 0) continue;
  }
  inPoll.fetch_sub(1, std::memory_order_relaxed);
}

void Doorbell::wake() {
  sequence.fetch_add(1, std::memory_order_seq_cst);
  if (inFutex.load(std::memory_order_seq_cst) != 0) futex(&sequence, FUTEX_WAKE, INT_MAX, nullptr);
  if (inPoll.load(std::memory_order_seq_cst) != 0) sendOnLine();
}

Result<UniqueFd> Doorbell::openLine() {
  // Who has a line rings those of others: the descriptor is taken now, and not at some moment of a run.
  lineSocket();
  std::array<uint64_t, 2> random{};
  TUTTI_TRY(randomBytes(random.data(), sizeof random));
  const std::string name = fmt::format("tutti-{:016x}{:016x}", random[0], random[1]);
  static_assert(6 + 32 < kLineBytes);
  name.copy(line, kLineBytes - 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return systemError(errno, "make a socket for wake-ups");
  const SocketAddress to = addressOf(line);
  if (::bind(fd.get(), to.data(), to.length()) != 0) return systemError(errno, "name a socket for wake-ups");
  return fd;
}

void Doorbell::sendOnLine() const {
  const SocketAddress to = addressOf(line);
  const auto send = [&to](int socket) {
    return ::sendto(socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, to.data(), to.length()) >= 0;
  };
  if (send(lineSocket()) || errno != EAGAIN) return;  // else: nobody is there any more
  // Either the sleeper's queue is full, and it wakes up anyway; or this process has filled the queues of so
  // many others, who do not look at theirs now, that its socket may send no more. A socket of its own can.
  const UniqueFd fresh(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fresh) send(fresh.get());
}

}  // namespace tutti
