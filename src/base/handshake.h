// Proof, at the start of a connection, that both ends belong to the same job.
//
//   connector                                              listener
//     HELLO  service, nonceC, payload            ------->
//                                                <-------   CHALLENGE  nonceL, HMAC(secret, "listener", all
//                                                above)
//     (checks: the listener knows the secret)
//     PROOF  HMAC(secret, "connector", all above) ------->
//     done: may send at once                                (checks: the connector knows the secret) done
//
// or, in place of CHALLENGE,                     <-------   REJECT  reason
//
// `service` says what the connector wants and so which secret applies. Every message is a frame (below), with
// lengths capped; anything else (a web browser, a port scanner) is recognised by its first bytes and dropped
// with one log line. Replays fail, since both nonces are fresh; nothing is encrypted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/deadline.h"
#include "base/fault_state.h"
#include "base/hmac.h"
#include "base/io_service.h"
#include "base/socket.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace tutti {

/// Header of every control message, 16 bytes on the wire, little-endian:
///   u32 magic  u16 version  u16 type  u32 length of the body  u32 reserved (0)
struct FrameHeader {
  static constexpr uint32_t kMagic = 0x49545554;  // "TUTI"
  static constexpr uint16_t kVersion = 1;
  static constexpr size_t kBytes = 16;

  uint16_t type = 0;
  uint32_t length = 0;

  std::string encode() const;
  /// Fails with a reason that shows the bytes when they are no header, have another version or are longer
  /// than maxLength.
  static Result<FrameHeader> decode(std::string_view bytes, uint32_t maxLength);
};
/// Header and body as one string.
std::string makeFrame(uint16_t type, std::string_view body);
/// Blocking forms, for simple protocols on an authenticated connection.
Status sendFrame(int fd, uint16_t type, std::string_view body, Deadline deadline, const FaultState* faults);
struct Frame {
  uint16_t type = 0;
  std::string body;
};
Result<Frame> receiveFrame(int fd, uint32_t maxLength, Deadline deadline, const FaultState* faults);

/// What a listener knows about an authenticated connection.
struct AcceptedConnection {
  UniqueFd fd;          // non-blocking; nothing has been read beyond the handshake
  SocketAddress peer;   // far end
  SocketAddress local;  // the address by which the peer reached this machine
  std::string payload;  // from the connector's HELLO; authenticated
};

constexpr size_t kMaxHelloPayload = 4096;

/// Connects to the first of `addresses` that answers the handshake for `service`; see base/dialer.h for the
/// order in which they are tried. Addresses that belong to someone else are skipped, those that refuse or do
/// not answer are tried again, as `retry` says. Blocks until the deadline at most.
Result<UniqueFd> connectAuthenticated(const std::vector<SocketAddress>& addresses, uint64_t service,
                                      const Secret& secret, std::string_view payload, Deadline deadline,
                                      const FaultState* faults,
                                      RetryPolicy retry = RetryPolicy::fromParams());

/// Asks once whether a service is still offered. An error when it certainly isn't (see Dialer::turnedAway);
/// ok when it is, and also when nothing was heard until the deadline.
Status checkOffered(const std::vector<SocketAddress>& addresses, uint64_t service, const Secret& secret,
                    std::string_view payload, Deadline deadline, const FaultState* faults);

/// Takes connections for any number of services on one listening socket, on the service thread. A slow or
/// silent peer delays nobody: every connection is a state machine with its own time limit, and when too many
/// are open without proof the oldest goes. Thread-safe.
class AuthListener : public std::enable_shared_from_this<AuthListener> {
 public:
  struct Limits {
    size_t unproven = 512;                   // connections at a time that have not proved anything
    std::chrono::milliseconds proof{10000};  // for one handshake
  };
  using Handler = std::function<void(AcceptedConnection)>;

  /// Listens on one socket for each address given (their ports may be 0).
  static Result<std::shared_ptr<AuthListener>> listen(const std::vector<SocketAddress>& addresses,
                                                      Limits limits);
  static Result<std::shared_ptr<AuthListener>> listen(const std::vector<SocketAddress>& addresses);
  /// The same, but on those only that are this host's; at least on one.
  static Result<std::shared_ptr<AuthListener>> listenWhereItCan(const std::vector<SocketAddress>& addresses);
  /// The listener that everything in this process shares, on the interfaces that the environment chooses.
  /// Lives as long as someone holds it. One descriptor or two, however many communicators there are; another
  /// one after the host's addresses have changed.
  static Result<std::shared_ptr<AuthListener>> ofProcess();

  ~AuthListener();

  /// Where peers can connect, best first.
  const std::vector<SocketAddress>& addresses() const { return addresses_; }

  /// Serves `service` from now on: `handler` gets each connection that proved knowledge of the secret, on the
  /// service thread, and must not block. The id should be random.
  Status offer(uint64_t service, const Secret& secret, Handler handler);
  /// After it returns, the handler isn't running and will not run (when called from inside the handler: will
  /// not run again).
  void withdraw(uint64_t service);

  /// Connections in the middle of a handshake.
  size_t unproven() const;

 private:
  struct Service;
  struct Pending;
  AuthListener() = default;
  Status open(const std::vector<SocketAddress>& addresses);
  Status openInterfaces(const std::vector<NetworkInterface>& interfaces);
  Status startAccepting();
  void acceptAll(size_t index);
  Result<UniqueFd> acceptOne(size_t index, std::string* refusal);
  void startHandshake(std::shared_ptr<Pending> pending);
  void pauseAccepting(size_t index, const Status& why);
  void watchSocket(size_t index, uint32_t events);
  void evictOldest();
  std::shared_ptr<Pending> forget(uint64_t key);
  void drop(uint64_t key, const std::string& why);
  void advance(uint64_t key);
  Result<bool> step(Pending& pending);
  Status answerHello(Pending& pending, std::string body);

  struct Socket {
    UniqueFd fd;
    IoService::Id handler = 0;
    IoService::Id resume = 0;  // timer
  };

  mutable std::mutex mutex_;
  Limits limits_;
  bool onlyListed_ = false;  // drop what comes by an address that is not in addresses_
  std::vector<Socket> sockets_;
  std::vector<SocketAddress> addresses_;
  std::vector<SocketAddress> interfaces_;  // of ofProcess(): what it was made for
  std::unordered_map<uint64_t, std::shared_ptr<Service>> services_;
  std::unordered_map<uint64_t, std::shared_ptr<Pending>> pending_;
  uint64_t nextKey_ = 1;
  /// Given up to accept a connection when there is no other descriptor left, so that it can be refused with
  /// the reason: else its peer would wait for ever. Service thread only.
  UniqueFd spare_;
  UniqueFd anchor_;  // what a spare one is a duplicate of
  std::chrono::steady_clock::time_point complained_;
};

}  // namespace tutti
