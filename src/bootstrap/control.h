// The control channel of a communicator: how its ranks talk beside the data, and how they notice that one of
// them has died.
//
//            rank 0  <---- star: one connection for each rank, open as long as the communicator ----
//           /  |   \          allGather, barrier, notices of death and abort, goodbye
//      rank 1  2 .. n-1
//          \___/              direct connections: send and receive, made on first use
//
// All connections of all communicators of a process come in by one listener. The service thread reads them,
// so rank 0 answers while its user's thread computes.
//
// A connection that ends without a goodbye means that the rank at its other end is dead. Rank 0 tells
// everyone; that of rank 0 itself is seen by all.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/fault_state.h"
#include "base/hmac.h"
#include "base/oob.h"
#include "base/status.h"
#include "bootstrap/member.h"
#include "nccl.h"

namespace tutti {

struct JoinRequest {
  ncclUniqueId id{};
  int rank = 0;
  int nranks = 1;
  /// What must be equal on all ranks: name and value. A difference is an error that names both ranks.
  std::map<std::string, std::string> settings;
  /// For an id of deriveId(): the ranks, by rank, as the communicator knows them that it comes from. Who has
  /// gone from there is not waited for.
  std::vector<Kin> kin;
  /// Raised when a peer dies or aborts; and when someone else raises it, every call here returns.
  std::shared_ptr<FaultState> faults;
  /// What this rank calls a time-out: the code of faults that come from a peer's one.
  ncclResult_t timedOut = ncclRemoteError;
  /// Called once, on the service thread, after this object has raised `faults`. Must not block. Not called,
  /// and not running, after leave() has returned.
  std::function<void()> onFault;
  /// Called on the service thread for every note() of a peer. Must not block; may be called until leave() has
  /// returned, and once more if it runs at that moment: hold no plain pointers.
  std::function<void(int from, std::string_view bytes)> onNote;
};

/// Thread-safety: allGather, barrier, send, receive and agree by one thread at a time; the rest at any time.
class Control : public OobChannel {
 public:
  /// Meets the other ranks and connects to rank 0. Blocks until all have come or the deadline has passed.
  static Result<std::unique_ptr<Control>> join(const JoinRequest& request, Deadline deadline);
  /// leave() with a short limit, if that has not happened.
  ~Control() override;

  int rank() const override;
  int size() const override;
  Result<std::vector<std::string>> allGather(std::string_view mine, Deadline deadline) override;
  Status barrier(Deadline deadline) override;
  Status send(int peer, uint64_t tag, std::string_view bytes, Deadline deadline) override;
  Result<std::string> receive(int peer, uint64_t tag, Deadline deadline) override;

  /// Messages with this tag go to `handler` from now on, in order, on the service thread; it must not block.
  /// Not called after leave() has returned.
  void handle(uint64_t tag, std::function<void(int peer, std::string_view bytes)> handler);
  /// Bytes of messages to the peer that still wait to be sent.
  size_t queuedBytes(int peer) const;

  /// Collective: fails on every rank when the ranks' values of any setting differ.
  Status agree(const std::map<std::string, std::string>& settings, Deadline deadline);

  /// Known to the ranks of this communicator only, and the same for all of them.
  const Secret& secret() const;
  /// Random number of this communicator, the same on all ranks; no secret.
  uint64_t session() const;
  /// "rank 3 (host node7, pid 4242)".
  std::string describe(int peer) const;
  /// Host name and process of a peer; left alone when they are not known yet.
  void whereabouts(int peer, std::string& host, int64_t& pid) const;

  /// The id of a rendezvous that ranks of this communicator can compute without talking to each other: equal
  /// for equal purposes. `leader`, a rank of this one, is to be rank 0 there; it need be alive, nobody else.
  /// Works after faults, but not after leave().
  ncclUniqueId deriveId(int leader, std::string_view purpose) const;

  /// How to ask whether these ranks are there, for JoinRequest::kin. As deriveId.
  std::vector<Kin> kin(const std::vector<int>& ranks) const;

  /// Tells the peers that this rank has failed or was aborted, and why: their FaultStates are raised with a
  /// remoteError, or with JoinRequest::timedOut when `why` has this rank's. Raising the own one is the
  /// caller's business. Never blocks.
  void announceFault(const Status& why);

  /// Sends bytes to a peer's onNote without waiting, between rank 0 and any other rank (either way). An error
  /// when there is no connection any more. By any thread.
  Status note(int peer, std::string_view bytes);
  /// "died: connection closed", "has left the communicator"; empty while it is there, as far as this rank
  /// knows (rank 0 knows of all; the others of rank 0, and of those that they have talked to).
  std::string gone(int peer) const;

  /// Says goodbye and closes all connections; the peers go on without this rank. Does not need them: returns
  /// at the deadline at the latest, after a second in any case. May be repeated.
  void leave(Deadline deadline);

 private:
  class Hub;
  explicit Control(std::shared_ptr<Hub> hub) : hub_(std::move(hub)) {}
  std::shared_ptr<Hub> hub_;
};

}  // namespace tutti
