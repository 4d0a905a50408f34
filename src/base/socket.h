// Socket addresses, network interfaces, and TCP or Unix sockets that never block without a deadline.
//
// All sockets are non-blocking and close-on-exec; writes never raise SIGPIPE; EINTR is handled.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/fault_state.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace tutti {

/// An IPv4, IPv6 (with scope) or abstract Unix address.
class SocketAddress {
 public:
  SocketAddress();
  static SocketAddress from(const sockaddr* address, socklen_t length);
  /// "10.0.0.7:4000", "[fe80::1%eth0]:4000", "name:4000" (resolved; `family` restricts the answers;
  /// may ask name servers). Port 0 is allowed.
  static Result<SocketAddress> parse(const std::string& text, int family = AF_UNSPEC);
  /// The same with all that the name means, in the resolver's order.
  static Result<std::vector<SocketAddress>> parseAll(const std::string& text, int family = AF_UNSPEC);
  /// Whether such a text gives its host by name. "localhost" and numbers mean exactly what they say.
  static bool namesHost(std::string_view text);
  static SocketAddress loopback(int family, uint16_t port);
  static SocketAddress any(int family, uint16_t port);
  /// Abstract Unix address: no file, gone with its socket; seen by the same network namespace only.
  static SocketAddress abstractUnix(std::string_view name);

  int family() const { return storage_.base.sa_family; }
  bool isValid() const { return family() != AF_UNSPEC; }
  uint16_t port() const;
  void setPort(uint16_t port);
  bool isLinkLocal() const;
  bool isLoopback() const;
  /// A link-local address means nothing without the interface of *this* machine that leads to it.
  void setScope(uint32_t interfaceIndex);
  uint32_t scope() const;

  const sockaddr* data() const { return &storage_.base; }
  socklen_t length() const { return length_; }
  /// "10.0.0.7:4000", "[fe80::1%eth0]:4000", "unix:@name".
  std::string text() const;
  /// Same without port: "10.0.0.7".
  std::string hostText() const;

  /// For messages: family byte, port, address; at most 23 bytes for IPv6, 7 for IPv4. Unix: length and name.
  std::string encode() const;
  /// Takes one address off the front of `bytes`; an invalid address when the bytes make no sense.
  static SocketAddress decode(std::string_view& bytes);

  bool operator==(const SocketAddress& other) const { return encode() == other.encode(); }
  /// Same address, whatever the ports.
  bool sameHost(const SocketAddress& other) const;

 private:
  union {
    sockaddr base;
    sockaddr_in v4;
    sockaddr_in6 v6;
    sockaddr_un local;
    sockaddr_storage any;
  } storage_;
  socklen_t length_ = 0;
};

/// One address of one interface.
struct NetworkInterface {
  std::string name;
  SocketAddress address;  // port 0
  int prefixBits = 0;     // length of the subnet
  uint32_t index = 0;
};

/// Every address of every interface that is up, in the kernel's order.
Result<std::vector<NetworkInterface>> listInterfaces();

/// How interfaces are chosen; see NCCL_SOCKET_IFNAME.
struct InterfaceRules {
  std::string names;         // as NCCL_SOCKET_IFNAME; empty: the default order
  int family = AF_UNSPEC;    // as NCCL_SOCKET_FAMILY
  SocketAddress sameSubnet;  // when valid and names is empty: after ib*, interfaces on its subnet come first
};
/// The interfaces to use, best first, and only of the best class that has any. Default order of classes: ib*,
/// the subnet given, anything but docker*, lo and virbr*; docker*; lo; virbr*. Inside a class, link-local
/// addresses come last and IPv4 before IPv6, else the order given is kept. Pure.
std::vector<NetworkInterface> chooseInterfaces(const std::vector<NetworkInterface>& all,
                                               const InterfaceRules& rules);
/// The rules that the environment asks for: NCCL_OOB_NET_IFNAME (if `outOfBand`), NCCL_SOCKET_IFNAME,
/// NCCL_SOCKET_FAMILY, NCCL_COMM_ID.
InterfaceRules interfaceRulesFromParams(bool outOfBand);
/// listInterfaces and chooseInterfaces; an error that lists what there was when nothing fits.
Result<std::vector<NetworkInterface>> usableInterfaces(const InterfaceRules& rules);
/// A peer's link-local addresses come without scope and mean nothing here without an interface: they come out
/// once for each interface of which `own` (our addresses) has a link-local one. Other addresses as they are.
std::vector<SocketAddress> withScopes(const std::vector<SocketAddress>& addresses,
                                      const std::vector<SocketAddress>& own);

/// Listens; port 0 takes a free one (ask localAddress). IPv6 sockets take IPv6 only, unless `dualStack`.
Result<UniqueFd> listenOn(const SocketAddress& address, int backlog = 1024, bool dualStack = false);
SocketAddress localAddress(int fd);
SocketAddress peerAddress(int fd);
/// One connection, or an empty UniqueFd when none is waiting. Transient errors count as none waiting.
Result<UniqueFd> acceptFrom(int listener);
/// Starts connecting; the socket is writable when connected or failed (then connectError).
Result<UniqueFd> startConnect(const SocketAddress& address);
/// errno of a connect that has ended; 0 when connected.
int connectError(int fd);
/// Connects, and tries again after ECONNREFUSED, ETIMEDOUT and the like, `retries` times with growing pauses.
struct RetryPolicy {
  int64_t retries = 0;
  int64_t pauseMs = 100;
  bool untilDeadline = false;  // retries is ignored
  static RetryPolicy fromParams();
};
Result<UniqueFd> connectTo(const SocketAddress& address, Deadline deadline, const FaultState* faults,
                           RetryPolicy retry = {});

/// Options of every connected socket: TCP_NODELAY, and keepalive and user time-outs that notice a vanished
/// host (TUTTI_PEER_TIMEOUT). No-op for Unix sockets.
void tuneConnection(int fd);

/// Waits until the socket is readable (POLLIN) or writable (POLLOUT). `faults` may be null.
Status waitFor(int fd, short events, Deadline deadline, const FaultState* faults);
/// Sleeps, but returns with an error once the deadline has passed or the communicator has stopped.
Status sleepFor(int64_t milliseconds, Deadline deadline, const FaultState* faults);
/// Sends / receives everything, or fails. End of file inside receiveAll is a remoteError.
Status sendAll(int fd, std::string_view bytes, Deadline deadline, const FaultState* faults);
Status receiveAll(int fd, void* buffer, size_t bytes, Deadline deadline, const FaultState* faults);

}  // namespace tutti
