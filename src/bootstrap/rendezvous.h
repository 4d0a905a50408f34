// How the ranks of a communicator find each other: all of them meet at the root.
//
//   rank k                                   root (process that made the unique id, or rank 0)
//     authenticated connection  -------->
//     (hello: rank, nranks, version,         checks each; waits for all
//      its own listener)
//                               <--------    TABLE: every rank's listener, session id and nonce
//                                    or      ERROR: who is missing, doubled, different
//     connects to rank 0
//     JOINED                    -------->    that one will not be asked any more
//   or ERROR: why it goes       -------->    tells the others
//   or the connection just ends (death)      tells the others
//
// Between TABLE and JOINED the ranks depend on one another and have no connections yet that would tell them
// of a death: the root watches. It is not needed after that. It runs on the service thread.
//
// Ranks that come from an older communicator (kin) can be asked for there, at their listeners: who does not
// answer to the older one any more will not come to the new one either.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/auth_connector.h"
#include "base/deadline.h"
#include "base/fault_state.h"
#include "base/handshake.h"
#include "base/status.h"
#include "bootstrap/link.h"
#include "bootstrap/member.h"
#include "bootstrap/unique_id.h"

namespace tutti {

/// What all ranks must be: in JoinHello.
std::string versionOfRank();

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

/// What a rank that gives up says: the others are told this.
Status leavingError(const Member& member, const Status& why);
/// A rank that is expected, but has gone from the communicator that it should come from.
Status goneError(int rank, const Member& kin, const Status& why);

/// "rank 3", "ranks 1, 4 to 6 and 9"; ascending.
std::string rankList(const std::vector<int>& ranks);

/// The root of one rendezvous. Owned by the listener's entry for it, so it lives until it is done.
class Root : public std::enable_shared_from_this<Root> {
 public:
  /// `kin`: by rank; empty where the ranks are strangers.
  static Status start(std::shared_ptr<AuthListener> listener, uint64_t id, const Secret& secret,
                      std::vector<Kin> kin = {});
  /// Ends the rendezvous of that id, if this process serves it and nobody has come yet.
  static void cancel(uint64_t id);
  /// After a failure, if this process serves the rendezvous of that id: waits until all ranks have heard why,
  /// also those that are only just coming. Else they would find nobody, if this process now ends.
  static void awaitTold(uint64_t id, Deadline deadline);

 private:
  Root(std::shared_ptr<AuthListener> listener, uint64_t id, std::vector<Kin> kin)
      : listener_(std::move(listener)), id_(id), kin_(std::move(kin)) {}
  void arrive(AcceptedConnection connection);
  Status check(const JoinHello& hello) const;
  void admit(JoinHello hello, AcceptedConnection connection);
  void setTimer(uint32_t limitMs);
  void expire();
  void remind();
  std::vector<int> missing() const;
  void complete();
  void onWord(int rank, uint16_t type, std::string_view body);
  void onClosed(int rank, const Status& why);
  void askForMissing();
  void onAnswer(int rank, const Status& answer);
  void fail(Status why);
  void refuse(const std::shared_ptr<Link>& link);
  void stopServing();
  void finish();
  void noteTold();

  struct Arrival {
    JoinHello hello;
    std::shared_ptr<Link> link;
    bool joined = false;  // does not depend on the root any more
  };

  // All of it is used by the service thread only, after start().
  std::shared_ptr<AuthListener> listener_;
  uint64_t id_;
  const std::vector<Kin> kin_;
  std::map<int, Arrival> arrivals_;
  std::map<int, std::unique_ptr<AuthConnector>> questions_;  // to kin that have not come
  std::vector<SocketAddress> reached_;  // our addresses by which ranks of other hosts came
  IoService::Id timer_ = 0;
  IoService::Id reminder_ = 0;
  IoService::Id asking_ = 0;
  std::chrono::milliseconds patience_{0};  // until the next reminder
  Deadline deadline_ = Deadline::never();
  std::chrono::steady_clock::time_point first_;
  bool serving_ = true;
  bool complete_ = false;  // the table is out
  bool done_ = false;
  Status failure_;
  std::set<int> came_;  // ranks that said hello, whether or not they could join
  int fewest_ = 0;      // the least number of ranks that any of them said there are
  bool expired_ = false;
  std::vector<std::weak_ptr<Link>> told_;  // connections on which a failure is under way
  std::atomic<bool> allTold_{false};
};

/// What the rank keeps of the rendezvous until it is connected to rank 0.
struct Meeting {
  RendezvousTable table;
  UniqueFd root;  // connection to the root
};

/// The rank's side: says hello, waits for the table. A rank that is stopped says that to the root, as the
/// others would wait for it until their deadline. `leader`: rank 0, where it comes from an older
/// communicator; may be null.
Result<Meeting> meet(const UniqueId& id, const JoinHello& hello, Deadline deadline, const FaultState* faults,
                     const Kin* leader);

/// For a rank that cannot even try: tells those who wait at the rendezvous that it will not come, and why.
/// May take kFarewellLimit.
void declineToMeet(const ncclUniqueId& id, int rank, int nranks, const Status& why);

/// Frames of the connection to the root after the table; see above.
enum : uint16_t { kTableFrame = 16, kErrorFrame = 17, kJoinedFrame = 18 };
std::string encodeError(const Status& why);
/// Whatever comes: an error.
Status decodeError(std::string_view body);

}  // namespace tutti
