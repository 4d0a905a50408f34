// The message connections of one endpoint: their rings, who works on them when, and how they come up.
//
//   running thread            progress() ------+        or asleep on the same epoll: sleep()
//                                              +-> one lock -> pump all lanes -> sockets
//   service thread (parked)   epoll -----------+
//
// While the rank's thread runs a collective it moves the lanes itself (take()). Before it sleeps or leaves it
// parks them: the service thread then watches the sockets, moves the lanes and rings the rank's bell. An idle
// communicator costs nothing, since nothing polls. Connections are made and accepted by the service thread
// alone, so that a rank can send to a peer whose threads do something else. A thread that takes the lanes and
// then stops calling progress() without parking them is found out by a timer, which parks them for it, and
// looks after what the thread may still publish until it parks them itself.
//
// A thread that sleeps in the middle of a run keeps the lanes and waits for sockets and bell at once
// (sleep()): with the service thread between, every message to a sleeping rank costs two wake-ups.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/auth_connector.h"
#include "base/fault_state.h"
#include "base/handshake.h"
#include "base/hmac.h"
#include "base/io_service.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "transport/endpoint.h"
#include "transport/pump.h"

namespace tutti {

class MessageTransport {
 public:
  /// Where a rank takes data connections. Exchanged out of band.
  struct Address {
    std::vector<SocketAddress> sockets;  // best first
    uint64_t service = 0;

    std::string encode() const;
    static Result<Address> decode(std::string_view bytes);
  };

  /// Starts to listen; connections are taken from now on. `bell` is of this rank and outlives the transport;
  /// `bellHasLine`: all who ring it are in this network namespace.
  static Result<std::unique_ptr<MessageTransport>> listen(const std::vector<PeerInfo>& peers, int rank,
                                                          const EndpointOptions& options, Doorbell* bell,
                                                          bool bellHasLine,
                                                          std::shared_ptr<FaultState> faults);
  /// Delivers what was published (as long as the peers take it, faults allow it, and something moves at least
  /// once a minute), says goodbye, and closes everything.
  ~MessageTransport();
  MessageTransport(const MessageTransport&) = delete;
  MessageTransport& operator=(const MessageTransport&) = delete;

  Address address() const;
  /// The addresses of all ranks (unused ones may be empty). Before the first sender().
  void setAddresses(std::vector<Address> addresses) { addresses_ = std::move(addresses); }

  /// The executor's end of a connection. Makes ring and, for senders, starts to connect, on first use. Never
  /// blocks. Pointers stay valid for the transport's life.
  Result<FifoSender*> sender(int peer, int channel, int port);
  Result<FifoReceiver*> receiver(int peer, int channel, int port);

  /// See Endpoint.
  bool progress();
  void sendNow();
  void park();
  void take();
  bool sleep(uint32_t ticket, uint32_t limitMicros);

 private:
  MessageTransport(const std::vector<PeerInfo>& peers, int rank, const EndpointOptions& options,
                   Doorbell* bell, std::shared_ptr<FaultState> faults);
  Status openListener();
  void accepted(AcceptedConnection connection);
  Status accept(AcceptedConnection& connection);
  void connected(NetLane* lane, Result<UniqueFd> fd);
  Result<NetLane*> lane(LaneId id);  // locked
  Status attach(NetLane* lane, std::unique_ptr<NetConnection> connection);
  void harvest();
  bool pumpAll();
  void onServiceThread();
  void parkLocked();
  void startTick(std::chrono::milliseconds delay);
  void onTick();
  void raise(const NetLane* lane, const Status& status);
  void deliverPending();
  std::string describePeer(int peer) const;

  const std::vector<PeerInfo> peers_;
  const int rank_;
  const EndpointOptions options_;
  const Secret secret_;
  Doorbell* const bell_;
  const std::shared_ptr<FaultState> faults_;
  std::vector<Address> addresses_;

  std::shared_ptr<AuthListener> listener_;
  uint64_t service_ = 0;

  /// Locks for anything but progress(), which polls and would otherwise keep the others waiting for long.
  /// Ends with a look whether progress() was turned away meanwhile.
  class Turn {
   public:
    explicit Turn(MessageTransport& transport);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    MessageTransport& transport_;
  };

  std::atomic<int> waiting_{0};  // threads that want their turn
  /// progress() sets it before it tries to lock, and clears it when it got the lock. Who holds the lock looks
  /// after having unlocked; so either progress() gets the lock or somebody starts the timer on its behalf.
  std::atomic<bool> turnedAway_{false};
  std::mutex mutex_;  // guards what follows, and every lane
  bool closing_ = false;
  std::unordered_map<uint64_t, std::unique_ptr<NetLane>> lanes_;
  std::vector<NetLane*> connected_;
  std::vector<std::unique_ptr<AuthConnector>> connectors_;
  UniqueFd epoll_;                   // edge-triggered, over all connections
  UniqueFd line_;                    // of the bell; none where the rank cannot sleep on epoll_
  IoService::Id watch_ = 0;          // of epoll_
  std::atomic<bool> parked_{true};   // cleared without the lock
  bool owesPark_ = false;            // a thread called sender() or progress(), and not park() since
  bool ticking_ = false;             // a timer looks after such a thread
  IoService::Id tick_ = 0;           // that timer, or the last one
  IoService::Id previousTick_ = 0;   // its handler may still be on its way out
  uint64_t rounds_ = 0;              // progress() calls
  uint64_t roundsSeen_ = 0;          // at the last tick
  std::atomic<bool> active_{false};  // there is a connected lane
};

/// The secret of a communicator as the base layer's connections want it.
Secret transportSecret(const EndpointOptions& options);

}  // namespace tutti
