// The inside of Control: what the service thread and the rank's thread share.
#pragma once

#include <unistd.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/event.h"
#include "base/handshake.h"
#include "base/identity.h"
#include "bootstrap/control.h"
#include "bootstrap/link.h"
#include "bootstrap/rendezvous.h"

namespace tutti {

class Control::Hub : public std::enable_shared_from_this<Control::Hub> {
 public:
  explicit Hub(const JoinRequest& request);
  ~Hub();

  Status start(const UniqueId& id, Deadline deadline);
  /// `status`, or the news from which it follows: a peer that has heard of a death and left may be noticed
  /// before the root's word of that death.
  Status rootCause(Status status) const;
  /// After start() and the first gather, or the failure of one of them: this rank does not need the root any
  /// more; a failure is made known to the others.
  void endRendezvous(uint64_t id, const Status& outcome);

  // See Control.
  Result<std::vector<std::string>> allGather(std::string_view mine, Deadline deadline);
  Status send(int peer, uint64_t tag, std::string_view bytes, Deadline deadline);
  Result<std::string> receive(int peer, uint64_t tag, Deadline deadline);
  using Handler = std::function<void(int peer, std::string_view bytes)>;
  void handle(uint64_t tag, Handler handler);
  size_t queuedBytes(int peer) const;
  ncclUniqueId deriveId(int leader, std::string_view purpose) const;
  std::vector<Kin> kin(const std::vector<int>& ranks) const;
  void announceFault(const Status& why);
  void leave(Deadline deadline);
  Status note(int peer, std::string_view bytes);
  std::string gone(int peer) const;
  void whereabouts(int peer, std::string& host, int64_t& pid) const;
  std::string describe(int peer) const;

  const int rank_;
  const int size_;
  Secret secret_;
  uint64_t session_ = 0;

 private:
  /// One connection: which peer, which kind.
  struct Connection {
    int peer;
    LinkKind kind;
    std::shared_ptr<Link> link;
  };
  enum class PeerState : uint8_t { unknown, left, dead };

  Status meetOthers(const UniqueId& id, Deadline deadline);
  Status serveRendezvous(const UniqueId& id, Deadline deadline);
  Status watchRoot(UniqueFd fd, bool isRankZero);
  Status connectStar(Deadline deadline);
  Secret linkSecret(uint64_t service) const;
  Result<std::shared_ptr<Link>> dial(int peer, LinkKind kind, Deadline deadline, const FaultState* faults);
  Result<std::shared_ptr<Link>> linkTo(int peer, Deadline deadline);
  Result<std::shared_ptr<Link>> addLink(int peer, LinkKind kind, UniqueFd fd);

  // Service thread.
  void accept(AcceptedConnection connection);
  void onFrame(int peer, LinkKind kind, uint16_t type, const std::string& body);
  void onClosed(int peer, LinkKind kind, const Status& why);
  void onGather(int peer, std::string_view body);
  void onAsk(int peer, std::string_view body);
  void onFailureNotice(int peer, std::string_view body);
  void onRootClosed(const SocketAddress& root, bool isRankZero, const Status& why);

  void contribute(int from, uint64_t sequence, std::string bytes);       // rank 0; mutex_ held
  void relayFailure(int about, bool timedOut, const std::string& text);  // mutex_ held
  void raiseFault(const Status& why);
  std::string missingFrom(uint64_t sequence) const;  // rank 0; mutex_ held
  std::string askWhoIsMissing(uint64_t sequence);
  Status waitSlice(uint32_t ticket, Deadline deadline);
  std::string describeLocked(int peer) const;
  Status checkPeer(int peer) const;  // mutex_ held

  const std::shared_ptr<FaultState> faults_;
  const ncclResult_t timedOut_;
  const std::vector<Kin> kin_;
  const std::function<void()> onFault_;
  const std::function<void(int, std::string_view)> onNote_;
  const uint64_t owner_ = forkCount();  // a forked child owns nothing of this

  std::shared_ptr<AuthListener> listener_;  // of the process
  uint64_t service_ = 0;                    // our name at it
  Secret idSecret_;

  mutable std::mutex mutex_;  // guards all below; taken before a Link's own
  Event changed_;
  std::shared_ptr<Link> root_;  // from the table to the first gather
  bool joined_ = false;         // the first gather is done
  Member self_;
  std::vector<Member> members_;  // empty until the table has come
  std::vector<PeerState> peers_;
  std::map<int, std::string> deaths_;            // of peers that are dead: what is told about it
  std::vector<Connection> connections_;          // all that are open
  std::vector<std::shared_ptr<Link>> star_;      // rank 0: by rank; others: [0]
  std::map<int, std::shared_ptr<Link>> direct_;  // used for sending
  std::map<std::pair<int, uint64_t>, std::deque<std::string>> inbox_;
  std::map<uint64_t, std::shared_ptr<const Handler>> handlers_;                // of messages, by tag
  uint64_t gathers_ = 0;                                                       // calls of allGather so far
  std::map<uint64_t, std::vector<std::optional<std::string>>> contributions_;  // rank 0
  std::map<uint64_t, std::string> gathered_;                                   // encoded results
  std::map<uint64_t, std::string> missing_;                                    // answers to kAskFrame
  bool failureRelayed_ = false;
  int failed_ = -1;      // whom the failure that was relayed concerns
  std::string failure_;  // its frame's body
  bool faultRaised_ = false;
  bool telling_ = false;  // the service thread is in onFault
  bool leaving_ = false;
};

}  // namespace tutti
