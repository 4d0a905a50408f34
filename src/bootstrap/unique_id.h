// What is inside an ncclUniqueId.
//
//   offset  bytes
//        0      4  magic "TUID"
//        4      1  layout version (2)
//        5      1  kind: 0 the maker's listener serves the rendezvous, 1 rank 0 does (NCCL_COMM_ID), 2 rank 0
//        does, on
//                  the listener of its process (ids derived from a communicator; they never leave the
//                  library)
//        6      1  number of addresses
//        7      1  0
//        8      8  random id: which rendezvous
//       16     16  secret of the job (zero for kind 1: it never travels in the id)
//       32      4  first bytes of SHA-256 over all others: tells a damaged or foreign id from a good one
//       36     92  addresses, best first, in runs of one family and port (a listener has one port for each
//                  family): u8 family (4, 6), u8 how many, u16 port, the addresses; then zeros. Room for 22
//                  IPv4 addresses or 5 IPv6 addresses.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/handshake.h"
#include "base/hmac.h"
#include "base/socket.h"
#include "base/status.h"
#include "nccl.h"

namespace tutti {

struct UniqueId {
  enum class Kind : uint8_t { makerServes = 0, rankZeroServes = 1, derived = 2 };

  Kind kind = Kind::makerServes;
  uint64_t id = 0;
  Secret secret;
  std::vector<SocketAddress> addresses;

  /// Addresses that do not fit are left out.
  ncclUniqueId encode() const;
  static Result<UniqueId> decode(const ncclUniqueId& bytes);
};

/// Makes a unique id. With NCCL_COMM_ID set it only encodes that address. Else this process serves the
/// rendezvous from now on, whether or not it becomes a rank, until all ranks have met, or a day has passed
/// without any of them.
Result<ncclUniqueId> createUniqueId();
/// The same, but whatever NCCL_COMM_ID says: for further communicators of a job.
Result<ncclUniqueId> createOwnUniqueId();
/// Stops serving an id that this process made and that nobody will use. No effect on other ids.
void forgetUniqueId(const ncclUniqueId& id);

/// Where rank 0 serves with NCCL_COMM_ID, as this host sees it: what the name means; where that is a loopback
/// address, this host's own addresses before it.
Result<std::vector<SocketAddress>> addressesOfCommId();

/// The secret of jobs that use NCCL_COMM_ID: made from the content of TUTTI_SECRET_FILE, or a constant when
/// there is none (then anyone who reaches the port can join).
Result<Secret> secretOfCommId();

}  // namespace tutti
