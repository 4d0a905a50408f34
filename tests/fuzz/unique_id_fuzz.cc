// Bytes of an ncclUniqueId, as they are and with a right checksum.
#include <cstring>

#include "base/hmac.h"
#include "bootstrap/unique_id.h"
#include "fuzz.h"

using namespace tutti;
using fuzz::require;

namespace {

void check(const ncclUniqueId& bytes) {
  const auto id = UniqueId::decode(bytes);
  if (!id.isOk()) {
    require(!id.status().message().empty(), "an error has a text");
    return;
  }
  for (const SocketAddress& address : id->addresses) {
    require(address.isValid(), "addresses are valid");
    require(!address.text().empty(), "addresses have a text");
  }
  const auto again = UniqueId::decode(id->encode());
  require(again.isOk() && again->id == id->id && again->secret == id->secret && again->kind == id->kind,
          "encode and decode agree");
  require(again->addresses == id->addresses, "also about addresses");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ncclUniqueId bytes{};
  std::memcpy(bytes.internal, data, std::min(size, sizeof bytes.internal));
  check(bytes);
  // See unique_id.h: four bytes at 32 are of the digest of all others.
  const std::string_view view(bytes.internal, sizeof bytes.internal);
  const Digest digest = sha256(std::string(view.substr(0, 32)).append(view.substr(36)));
  std::memcpy(bytes.internal + 32, digest.data(), 4);
  check(bytes);
  return 0;
}
