// Frames, and the connecting end of the handshake.
#include "base/handshake.h"

#include <algorithm>

#include "base/handshake_messages.h"
#include "base/log.h"
#include "base/random.h"

namespace tutti {
namespace {

constexpr std::chrono::milliseconds kConnectLimit{10000};

/// What came in place of a frame, for people: printable characters as they are.
std::string printable(std::string_view bytes) {
  std::string text;
  for (const char c : bytes.substr(0, FrameHeader::kBytes)) {
    if (c >= ' ' && c <= '~' && c != '"') {
      text.push_back(c);
    } else {
      text += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<uint8_t>(c)));
    }
  }
  return text;
}

struct AttemptResult {
  UniqueFd fd;
  Status status;
  bool final = false;  // trying this address again cannot help
};

/// The connector's half of the exchange on a connected socket. Services are offered before anyone is told
/// about them, so a refusal is final, unless the caller knows the address only (`mayAppear`).
Status exchange(int fd, uint64_t service, const Secret& secret, std::string_view payload, Deadline deadline,
                const FaultState* faults, bool mayAppear, bool& final) {
  HelloMessage hello;
  hello.service = service;
  hello.payload = std::string(payload);
  TUTTI_TRY(randomBytes(hello.nonce.data(), hello.nonce.size()));
  const std::string helloBody = hello.encode();
  TUTTI_TRY(sendFrame(fd, kHelloFrame, helloBody, deadline, faults));
  TUTTI_ASSIGN(const Frame answer, receiveFrame(fd, kMaxRejectBytes, deadline, faults));
  if (answer.type == kRejectFrame) {
    final = !mayAppear;
    return remoteError("refused: {}", answer.body);
  }
  ChallengeMessage challenge;
  if (answer.type != kChallengeFrame || !challenge.decode(answer.body))
    return remoteError("the answer is no challenge (frame type {}, {} bytes)", answer.type,
                       answer.body.size());
  if (!equalInConstantTime(challenge.proof, proofOf(secret, "listener", helloBody, challenge.nonce))) {
    final = true;
    return remoteError(
        "the listener does not know this job's secret (another job, or another TUTTI_SECRET_FILE)");
  }
  return sendFrame(fd, kProofFrame, proofOf(secret, "connector", helloBody, challenge.nonce), deadline,
                   faults);
}

AttemptResult attempt(const SocketAddress& address, uint64_t service, const Secret& secret,
                      std::string_view payload, Deadline deadline, const FaultState* faults, bool mayAppear) {
  AttemptResult result;
  auto connected = connectTo(address, deadline, faults);
  if (!connected.isOk()) {
    result.status = connected.status();
    return result;
  }
  result.status =
      exchange(connected->get(), service, secret, payload, deadline, faults, mayAppear, result.final)
          .withContext("handshake with {}", address.text());
  if (result.status.isOk()) result.fd = std::move(*connected);
  return result;
}

}  // namespace

std::string FrameHeader::encode() const {
  return WireWriter().u32(kMagic).u16(kVersion).u16(type).u32(length).u32(0).bytes();
}

Result<FrameHeader> FrameHeader::decode(std::string_view bytes, uint32_t maxLength) {
  WireReader in(bytes);
  FrameHeader header;
  const uint32_t magic = in.u32();
  const uint16_t version = in.u16();
  header.type = in.u16();
  header.length = in.u32();
  const uint32_t reserved = in.u32();
  if (!in.ok() || magic != kMagic) return remoteError("not a Tutti message: \"{}\"", printable(bytes));
  if (version != kVersion)
    return remoteError("version {} of the wire protocol, here it is {}: all ranks need the same Tutti",
                       version, kVersion);
  if (reserved != 0 || header.length > maxLength)
    return remoteError("malformed message header (type {}, length {}, limit {})", header.type, header.length,
                       maxLength);
  return header;
}

std::string makeFrame(uint16_t type, std::string_view body) {
  FrameHeader header;
  header.type = type;
  header.length = static_cast<uint32_t>(body.size());
  return header.encode().append(body);
}

Status sendFrame(int fd, uint16_t type, std::string_view body, Deadline deadline, const FaultState* faults) {
  return sendAll(fd, makeFrame(type, body), deadline, faults);
}

Result<Frame> receiveFrame(int fd, uint32_t maxLength, Deadline deadline, const FaultState* faults) {
  char bytes[FrameHeader::kBytes];
  TUTTI_TRY(receiveAll(fd, bytes, sizeof bytes, deadline, faults));
  TUTTI_ASSIGN(const FrameHeader header, FrameHeader::decode({bytes, sizeof bytes}, maxLength));
  Frame frame;
  frame.type = header.type;
  frame.body.resize(header.length);
  TUTTI_TRY(receiveAll(fd, frame.body.data(), frame.body.size(), deadline, faults));
  return frame;
}

Result<UniqueFd> connectAuthenticated(const std::vector<SocketAddress>& addresses, uint64_t service,
                                      const Secret& secret, std::string_view payload, Deadline deadline,
                                      const FaultState* faults, RetryPolicy retry) {
  if (addresses.empty()) return invalidArgument("connect: no address is known");
  if (payload.size() > kMaxHelloPayload)
    return internalError("handshake payload of {} bytes", payload.size());
  std::vector<SocketAddress> left = addresses;
  std::string errors;
  Status last;
  for (int64_t round = 0;; ++round) {
    // The first rounds are quick, so that an address that leads nowhere costs little when there are others.
    const auto patience = left.size() == 1
                              ? kConnectLimit
                              : std::min(kConnectLimit, std::chrono::milliseconds(1000) * (round + 1));
    std::vector<SocketAddress> again;
    for (const SocketAddress& address : left) {
      const Deadline limit = std::min(deadline, Deadline::after(patience));
      AttemptResult result = attempt(address, service, secret, payload, limit, faults, retry.untilDeadline);
      if (result.status.isOk()) return std::move(result.fd);
      if (faults != nullptr && faults->stopped()) return faults->error();
      last = result.status;
      logTrace(Subsystem::bootstrap, "{}", result.status.message());
      if (!result.final) again.push_back(address);
    }
    if (again.empty()) return last;
    if (!retry.untilDeadline && round >= retry.retries) return last.withContext("after {} tries", round + 1);
    left = std::move(again);
    const int64_t pause = std::min<int64_t>(retry.pauseMs * (round + 1), 1000);
    if (Status status = sleepFor(pause, deadline, faults); !status.isOk()) {
      if (faults != nullptr && faults->stopped()) return faults->error();
      return last.withContext("timed out after {} tries", round + 1);
    }
  }
}

}  // namespace tutti
