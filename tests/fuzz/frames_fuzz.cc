// Bodies and headers of messages: "<which><bytes>". What can be decoded is encoded again, and means the same.
#include "base/handshake.h"
#include "base/handshake_messages.h"
#include "base/socket.h"
#include "bootstrap/rendezvous.h"
#include "fuzz.h"

using namespace tutti;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view bytes = fuzz::viewOf(data + 1, size - 1);
  switch (data[0] % 6) {
    case 0: {
      const auto header = FrameHeader::decode(bytes, 1 << 20);
      if (!header.isOk()) break;
      require(header->length <= 1 << 20, "lengths are capped");
      require(header->encode() == bytes.substr(0, FrameHeader::kBytes), "a header is encoded as it was");
      break;
    }
    case 1: {
      HelloMessage hello;
      if (hello.decode(bytes)) require(hello.encode() == bytes, "a hello is encoded as it was");
      break;
    }
    case 2: {
      ChallengeMessage challenge;
      if (challenge.decode(bytes)) require(challenge.encode() == bytes, "a challenge is encoded as it was");
      break;
    }
    case 3: {
      const auto hello = JoinHello::decode(bytes);
      if (!hello.isOk()) break;
      const auto again = JoinHello::decode(hello->encode());
      require(again.isOk() && again->encode() == hello->encode(), "a join is encoded as it was");
      require(!hello->member.text().empty(), "a member has a text");
      break;
    }
    case 4: {
      const auto table = RendezvousTable::decode(bytes);
      if (!table.isOk()) break;
      const auto again = RendezvousTable::decode(table->encode());
      require(again.isOk() && again->encode() == table->encode(), "a table is encoded as it was");
      break;
    }
    default: {
      std::string_view left = bytes;
      const SocketAddress address = SocketAddress::decode(left);
      require(left.size() <= bytes.size(), "no more is taken than there is");
      if (!address.isValid()) break;
      std::string_view again = bytes;
      require(address.encode() == bytes.substr(0, bytes.size() - left.size()) ||
                  SocketAddress::decode(again) == address,
              "an address is encoded as it was");
      require(!address.text().empty(), "an address has a text");
      break;
    }
  }
  return 0;
}
