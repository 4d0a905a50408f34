// Frames, and the blocking form of the handshake's connecting end.
#include "base/handshake.h"

#include <algorithm>

#include "base/dialer.h"
#include "base/wire.h"

namespace tutti {
namespace {

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
  Dialer::Request request{addresses, service, secret, std::string(payload), retry};
  // Services are offered before anyone is told about them, so a refusal is final, unless the caller knows the
  // address only.
  request.serviceMayCome = retry.untilDeadline;
  TUTTI_ASSIGN(const std::unique_ptr<Dialer> dialer, Dialer::start(std::move(request)));
  return dialer->connect(deadline, faults);
}

Status checkOffered(const std::vector<SocketAddress>& addresses, uint64_t service, const Secret& secret,
                    std::string_view payload, Deadline deadline, const FaultState* faults) {
  TUTTI_ASSIGN(const std::unique_ptr<Dialer> dialer,
               Dialer::start({addresses, service, secret, std::string(payload), RetryPolicy{}}));
  const auto outcome = dialer->finish(deadline, faults);
  return outcome && dialer->turnedAway() ? outcome->status() : Status::ok();
}

}  // namespace tutti
