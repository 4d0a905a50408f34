// Connections of strangers to the sockets that a process listens at.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace tutti::system_test {

/// A listening socket of another process.
struct Listener {
  std::string name;  // of an abstract Unix socket; else "127.0.0.1:port" or the like
  sockaddr_storage address{};
  socklen_t length = 0;
  bool isUnix() const { return address.ss_family == AF_UNIX; }
};

/// TCP and abstract Unix sockets that the process listens at, from /proc.
std::vector<Listener> listenersOf(pid_t process);
/// TCP connections of the process, from /proc.
int establishedConnections(pid_t process);

/// A connection; closed at the end.
class Connection {
 public:
  explicit Connection(const Listener& listener);
  ~Connection();
  Connection(Connection&& other) noexcept;
  Connection& operator=(Connection&&) = delete;

  bool isOpen() const { return fd_ >= 0; }
  /// False when not all was taken.
  bool say(std::string_view text) const;
  /// What comes until the other side closes, or for so long.
  std::string hear(int milliseconds) const;
  /// The end will be a reset.
  void resetAtEnd() const;

 private:
  int fd_ = -1;
};

/// One round of each kind of garbage at a listener: connections that close or reset at once, that send HTTP,
/// random bytes, a frame's head with a mad length, half a frame. Gives how many could connect.
int sendGarbage(const Listener& listener, unsigned seed);

}  // namespace tutti::system_test
