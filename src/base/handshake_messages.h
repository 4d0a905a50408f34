// Bodies of the handshake's frames; see handshake.h for the exchange.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/hmac.h"
#include "base/wire.h"

namespace tutti {

enum : uint16_t { kHelloFrame = 1, kChallengeFrame = 2, kProofFrame = 3, kRejectFrame = 4 };

using Nonce = std::array<uint8_t, 16>;
constexpr uint32_t kMaxRejectBytes = 1024;
/// How the refusal of a service begins that is not, or not any more, offered.
constexpr std::string_view kNothingHere = "nothing here answers to this id";
constexpr size_t kProofBytes = 32;
constexpr size_t kHelloFixedBytes = 8 + sizeof(Nonce);

inline std::string_view viewOf(const Nonce& nonce) {
  return {reinterpret_cast<const char*>(nonce.data()), nonce.size()};
}
inline bool take(WireReader& in, Nonce& nonce) {
  const std::string_view raw = in.raw(nonce.size());
  if (raw.size() != nonce.size()) return false;
  std::memcpy(nonce.data(), raw.data(), raw.size());
  return true;
}

struct HelloMessage {
  uint64_t service = 0;
  Nonce nonce{};
  std::string payload;

  std::string encode() const { return WireWriter().u64(service).raw(viewOf(nonce)).raw(payload).bytes(); }
  bool decode(std::string_view bytes) {
    WireReader in(bytes);
    service = in.u64();
    if (!take(in, nonce)) return false;
    payload = std::string(in.raw(in.left()));
    return in.finished();
  }
};

struct ChallengeMessage {
  Nonce nonce{};
  std::string proof;

  std::string encode() const { return WireWriter().raw(viewOf(nonce)).raw(proof).bytes(); }
  bool decode(std::string_view bytes) {
    WireReader in(bytes);
    if (!take(in, nonce)) return false;
    proof = std::string(in.raw(kProofBytes));
    return in.finished();
  }
};

/// What proves that `role` knows the secret, for this exchange only: both nonces are in it. The roles keep
/// one side's proof from being sent back as the other's.
inline std::string proofOf(const Secret& secret, std::string_view role, std::string_view helloBody,
                           const Nonce& listenerNonce) {
  const std::string text = WireWriter()
                               .string("tutti handshake 1")
                               .string(role)
                               .string(helloBody)
                               .raw(viewOf(listenerNonce))
                               .bytes();
  const Digest digest = hmacSha256(secret.view(), text);
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace tutti
