// The wire handshake over real sockets: "<which><bytes>". Even: bytes sent to a listener; odd: bytes that
// answer a connector. Whatever comes, nobody but those who know the secret gets through, and good connections
// still work.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/handshake.h"
#include "fuzz.h"

using namespace tutti;
using fuzz::require;

namespace {

constexpr uint64_t kService = 0x1122334455667788;

struct Listening {
  Secret secret = *Secret::random();
  std::atomic<uint64_t> accepted{0};
  std::shared_ptr<AuthListener> listener;
  UniqueFd answering;  // the other side's listener: whoever connects gets the bytes of the input
  uint64_t runs = 0;

  Listening() {
    listener = *AuthListener::listen({SocketAddress::loopback(AF_INET, 0)});
    require(listener->offer(kService, secret, [this](AcceptedConnection) { ++accepted; }).isOk(), "offer");
    answering = *listenOn(SocketAddress::loopback(AF_INET, 0));
  }
  Result<UniqueFd> connectRightly() {
    return connectAuthenticated(listener->addresses(), kService, secret, "payload",
                                Deadline::after(std::chrono::seconds(5)), nullptr, RetryPolicy{});
  }
};

/// Sends all and reads to the end.
void talk(int fd, std::string_view bytes) {
  const Deadline limit = Deadline::after(std::chrono::seconds(5));
  sendAll(fd, bytes, limit, nullptr).ignore();
  ::shutdown(fd, SHUT_WR);
  char answer[4096];
  while (waitFor(fd, POLLIN, limit, nullptr).isOk())
    if (::recv(fd, answer, sizeof answer, 0) <= 0) break;
}

void attackListener(Listening& it, std::string_view bytes) {
  const uint64_t before = it.accepted;
  auto fd = connectTo(it.listener->addresses()[0], Deadline::after(std::chrono::seconds(5)), nullptr);
  require(fd.isOk(), "the listener takes connections");
  talk(fd->get(), bytes);
  require(it.accepted == before, "nobody gets through without the secret");
}

void attackConnector(Listening& it, std::string_view bytes) {
  std::thread answerer([&] {
    if (!waitFor(it.answering.get(), POLLIN, Deadline::after(std::chrono::seconds(5)), nullptr).isOk())
      return;
    auto fd = acceptFrom(it.answering.get());
    if (fd.isOk() && *fd) talk(fd->get(), bytes);
  });
  const auto connected =
      connectAuthenticated({localAddress(it.answering.get())}, kService, it.secret, "payload",
                           Deadline::after(std::chrono::seconds(5)), nullptr, RetryPolicy{});
  answerer.join();
  require(!connected.isOk(), "an answer without the secret is not taken");
  require(!connected.status().message().empty(), "and the error has a text");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Listening& it = *new Listening;
  if (size < 1) return 0;
  const std::string_view bytes = fuzz::viewOf(data + 1, size - 1);
  if ((data[0] & 1) == 0) {
    attackListener(it, bytes);
  } else {
    attackConnector(it, bytes);
  }
  if (++it.runs % 256 == 1) {
    const uint64_t before = it.accepted;
    const auto good = it.connectRightly();
    require(good.isOk(), "those who know the secret get through");
    // The listener's side ends a moment later.
    for (int i = 0; i < 5000 && it.accepted == before; ++i) ::usleep(1000);
    require(it.accepted == before + 1, "and are accepted");
  }
  return 0;
}
