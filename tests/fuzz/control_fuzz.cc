// The control channel: a rank that knows the secret, but talks nonsense. "<how><bytes>".
//   how % 4 == 0    the bytes are its hello at the rendezvous
//   how % 4 == 1    it joins, and the bytes are its hello at rank 0's listener
//   otherwise       it joins and connects, and the bytes are its frames: "<type><length><body>", or raw when
//   odd
// Rank 0 must get an error or a result, in time, and end in good order.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "base/log.h"
#include "base/wire.h"
#include "bootstrap/control.h"
#include "bootstrap/control_frames.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/unique_id.h"
#include "fuzz.h"

using namespace tutti;
using fuzz::require;

namespace {

Deadline soon() { return Deadline::after(std::chrono::seconds(5)); }

bool silence() {
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ::dup2(nowhere, STDOUT_FILENO);
  ::setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
  return true;
}

void sayAndListen(int fd, std::string_view bytes) {
  sendAll(fd, bytes, soon(), nullptr).ignore();
  ::shutdown(fd, SHUT_WR);
  char answer[4096];
  while (waitFor(fd, POLLIN, soon(), nullptr).isOk())
    if (::recv(fd, answer, sizeof answer, 0) <= 0) break;
}

/// At a rendezvous that waits for two: an answer, or the end of the connection.
void attackRoot(std::string_view bytes) {
  static UniqueId id;
  static int uses = 0;
  if (uses++ % 64 == 0) id = *UniqueId::decode(*createUniqueId());
  auto fd = connectAuthenticated(id.addresses, id.id, id.secret, bytes.substr(0, kMaxHelloPayload), soon(),
                                 nullptr, RetryPolicy{});
  // A hello that is in order is kept waiting for the other rank: nothing to read then.
  if (!fd.isOk()) return;
  ::shutdown(fd->get(), SHUT_WR);
}

std::string frames(std::string_view bytes, bool raw) {
  if (raw) return std::string(bytes);
  std::string result;
  while (bytes.size() >= 2) {
    const auto type = static_cast<uint16_t>(static_cast<uint8_t>(bytes[0]) % 8 + kGatherFrame);
    const size_t length = std::min<size_t>(static_cast<uint8_t>(bytes[1]), bytes.size() - 2);
    result += makeFrame(type, bytes.substr(2, length));
    bytes.remove_prefix(2 + length);
  }
  return result;
}

/// What rank 0 of the library does meanwhile.
void beRankZero(const ncclUniqueId& id) {
  JoinRequest request;
  request.id = id;
  request.nranks = 2;
  request.settings = {{"NCCL_PROTO", ""}};
  request.faults = std::make_shared<FaultState>();
  const auto control = Control::join(request, soon());
  if (!control.isOk()) {
    require(!control.status().message().empty(), "a failed join has a text");
    return;
  }
  const auto gathered = (*control)->allGather("mine", soon());
  require(!gathered.isOk() || gathered->size() == 2, "a gather has a part of each rank");
  (*control)->receive(1, 7, Deadline::after(std::chrono::milliseconds(20))).status().ignore();
  (*control)->leave(Deadline::after(std::chrono::milliseconds(200)));
}

void attackRank(uint8_t how, std::string_view bytes) {
  const ncclUniqueId bytesOfId = *createUniqueId();
  const UniqueId id = *UniqueId::decode(bytesOfId);
  std::thread rankZero(beRankZero, bytesOfId);
  JoinHello hello;
  hello.version = "";
  hello.nranks = 2;
  hello.limitMs = 5000;
  hello.member = {1, "fuzz", 1, 42, id.addresses};
  // Versions are compared: say what rank 0 says.
  hello.version = fmt::format("{} (NCCL {})", tuttiVersion(), NCCL_VERSION_CODE);
  const auto meeting = meet(id, hello, soon(), nullptr, nullptr);
  require(meeting.isOk(), "both ranks meet");
  const Member& zero = meeting->table.members[0];
  const Secret secret = id.secret.derive(WireWriter().string("link").u64(zero.service).bytes());
  const bool isHello = how % 4 == 1;
  const std::string payload =
      isHello ? std::string(bytes.substr(0, kMaxHelloPayload)) : WireWriter().u8(1).i32(1).bytes();
  auto fd =
      connectAuthenticated(zero.addresses, zero.service, secret, payload, soon(), nullptr, RetryPolicy{});
  if (fd.isOk()) sayAndListen(fd->get(), isHello ? std::string() : frames(bytes, how % 2 == 1));
  if (isHello) {
    // Rank 0 still waits for its star: a real one, which then closes.
    auto real = connectAuthenticated(zero.addresses, zero.service, secret, WireWriter().u8(1).i32(1).bytes(),
                                     soon(), nullptr, RetryPolicy{});
    if (real.isOk()) sayAndListen(real->get(), {});
  }
  rankZero.join();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static const bool kSilent = silence();
  if (size < 1) return 0;
  const std::string_view bytes = fuzz::viewOf(data + 1, size - 1);
  if (data[0] % 4 == 0) {
    attackRoot(bytes);
  } else {
    attackRank(data[0], bytes);
  }
  return 0;
}
