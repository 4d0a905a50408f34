// Ranks, as the others know them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hmac.h"
#include "base/socket.h"

namespace tutti {

/// One rank, as the others know it.
struct Member {
  int rank = -1;
  std::string host;
  int64_t pid = 0;
  uint64_t service = 0;                  // what its listener calls this rank
  std::vector<SocketAddress> addresses;  // of its listener, best first

  /// "rank 3 (host node7, pid 4242)".
  std::string text() const;
};

/// A rank of an older communicator, which is expected in a new one: how to ask whether it is still there.
struct Kin {
  Member member;  // as the older communicator knows it
  Secret secret;  // for its service there
};

/// Kinds of connection that a rank's listener takes; in the connector's hello.
enum class LinkKind : uint8_t {
  star = 1,
  direct = 2,
  probe = 3  // only asks whether the rank is there
};

/// Payload of such a connection. `from`: -1 in a probe.
std::string linkHello(LinkKind kind, int from);

}  // namespace tutti
