// How the ranks of a communicator find each other: all of them meet at the root.
//
//   rank k                                   root (process that made the unique id, or rank 0)
//     authenticated connection  -------->
//     (hello: rank, nranks, version,         checks each; waits for all
//      its own listener)
//                               <--------    TABLE: every rank's listener, session id and nonce
//                                    or      ERROR: who is missing, doubled, different
//
// The root is not needed after that. It runs on the service thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/fault_state.h"
#include "base/handshake.h"
#include "base/status.h"
#include "bootstrap/link.h"
#include "bootstrap/unique_id.h"

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

/// What a rank says to the root.
struct JoinHello {
  std::string version;
  int nranks = 0;
  uint32_t limitMs = 0;  // how long this rank will wait
  Member member;
  std::string leaving;  // not empty: the rank does not join but gives up, for this reason

  std::string encode() const;
  static Result<JoinHello> decode(std::string_view bytes);
};

/// What the root answers when all is well.
struct RendezvousTable {
  uint64_t session = 0;  // random
  std::vector<Member> members;

  std::string encode() const;
  static Result<RendezvousTable> decode(std::string_view bytes);
};

/// So long a rank that is stopped tries to say so. It keeps ncclCommAbort waiting.
constexpr std::chrono::milliseconds kFarewellLimit{300};

/// "rank 3", "ranks 1, 4 to 6 and 9"; ascending.
std::string rankList(const std::vector<int>& ranks);

/// The root of one rendezvous. Owned by the listener's entry for it, so it lives until it is done.
class Root : public std::enable_shared_from_this<Root> {
 public:
  static Status start(std::shared_ptr<AuthListener> listener, uint64_t id, const Secret& secret);
  /// Ends the rendezvous of that id, if this process serves it and nobody has come yet.
  static void cancel(uint64_t id);

 private:
  Root(std::shared_ptr<AuthListener> listener, uint64_t id) : listener_(std::move(listener)), id_(id) {}
  void arrive(AcceptedConnection connection);
  Status check(const JoinHello& hello) const;
  void admit(JoinHello hello, AcceptedConnection connection);
  void setTimer(uint32_t limitMs);
  void expire();
  void remind();
  std::vector<int> missing() const;
  void complete();
  void fail(Status why);
  void refuse(const std::shared_ptr<Link>& link) const;
  void finish();

  struct Arrival {
    JoinHello hello;
    std::shared_ptr<Link> link;
  };

  // All of it is used by the service thread only, after start().
  std::shared_ptr<AuthListener> listener_;
  uint64_t id_;
  std::map<int, Arrival> arrivals_;
  std::vector<SocketAddress> reached_;  // our addresses by which ranks of other hosts came
  IoService::Id timer_ = 0;
  IoService::Id reminder_ = 0;
  std::chrono::milliseconds patience_{0};  // until the next reminder
  Deadline deadline_ = Deadline::never();
  std::chrono::steady_clock::time_point first_;
  bool done_ = false;
  Status failure_;
};

/// The rank's side: says hello, waits for the table. A rank that is stopped before it came says that to the
/// root, as the others would wait for it until their deadline.
Result<RendezvousTable> meet(const UniqueId& id, const JoinHello& hello, Deadline deadline,
                             const FaultState* faults);

}  // namespace tutti
