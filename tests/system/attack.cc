#include "system/attack.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <utility>

namespace tutti::system_test {
namespace {

/// Inode numbers of the sockets of a process.
std::set<unsigned long> socketsOf(pid_t process) {
  std::set<unsigned long> inodes;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd", error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error);
    if (target.starts_with("socket:[")) inodes.insert(std::strtoul(target.c_str() + 8, nullptr, 10));
  }
  return inodes;
}

/// "0100007F:1F90" as the kernel prints it: words of the machine's byte order.
Listener tcpListener(const std::string& text, bool six) {
  Listener listener;
  const auto port = static_cast<uint16_t>(std::strtoul(text.substr(text.find(':') + 1).c_str(), nullptr, 16));
  char shown[INET6_ADDRSTRLEN] = {};
  if (six) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    for (size_t i = 0; i < 4; ++i) {
      const auto word = static_cast<uint32_t>(std::strtoul(text.substr(8 * i, 8).c_str(), nullptr, 16));
      std::memcpy(address.sin6_addr.s6_addr + 4 * i, &word, 4);
    }
    if (IN6_IS_ADDR_UNSPECIFIED(&address.sin6_addr)) address.sin6_addr = in6addr_loopback;
    ::inet_ntop(AF_INET6, &address.sin6_addr, shown, sizeof shown);
    std::memcpy(&listener.address, &address, sizeof address);
    listener.length = sizeof address;
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = static_cast<uint32_t>(std::strtoul(text.substr(0, 8).c_str(), nullptr, 16));
    if (address.sin_addr.s_addr == 0) address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::inet_ntop(AF_INET, &address.sin_addr, shown, sizeof shown);
    std::memcpy(&listener.address, &address, sizeof address);
    listener.length = sizeof address;
  }
  listener.name = std::string(shown) + ":" + std::to_string(port);
  return listener;
}

Listener unixListener(const std::string& name) {
  Listener listener;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof address.sun_path - 1));
  std::memcpy(&listener.address, &address, sizeof address);
  listener.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  listener.name = name;
  return listener;
}

/// Calls `each` with the local address of every TCP socket of the process in this state.
template <typename Each>
void forTcpSockets(pid_t process, const char* wanted, Each each) {
  const auto sockets = socketsOf(process);
  for (const bool six : {false, true}) {
    std::ifstream table(six ? "/proc/net/tcp6" : "/proc/net/tcp");
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
      // slot local remote state queues timer retransmits uid timeout inode
      std::istringstream fields(line);
      std::string slot, local, remote, state, skip, inode;
      fields >> slot >> local >> remote >> state >> skip >> skip >> skip >> skip >> skip >> inode;
      if (state == wanted && sockets.count(std::strtoul(inode.c_str(), nullptr, 10)) != 0) each(local, six);
    }
  }
}

}  // namespace

std::vector<Listener> listenersOf(pid_t process) {
  std::vector<Listener> found;
  forTcpSockets(process, "0A",
                [&](const std::string& local, bool six) { found.push_back(tcpListener(local, six)); });
  const auto sockets = socketsOf(process);
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    std::string number, references, protocol, flags, type, state, inode, path;
    fields >> number >> references >> protocol >> flags >> type >> state >> inode >> path;
    if ((std::strtoul(flags.c_str(), nullptr, 16) & 0x10000) == 0 || !path.starts_with("@")) continue;
    if (sockets.count(std::strtoul(inode.c_str(), nullptr, 10)) != 0)
      found.push_back(unixListener(path.substr(1)));
  }
  return found;
}

int establishedConnections(pid_t process) {
  int count = 0;
  forTcpSockets(process, "01", [&](const std::string&, bool) { ++count; });
  return count;
}

Connection::Connection(const Listener& listener)
    : fd_(::socket(listener.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const timeval limit{2, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);  // also of connect
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&listener.address), listener.length) == 0) return;
  ::close(fd_);
  fd_ = -1;
}

Connection::~Connection() {
  if (fd_ >= 0) ::close(fd_);
}

Connection::Connection(Connection&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

bool Connection::say(std::string_view text) const {
  return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

std::string Connection::hear(int milliseconds) const {
  std::string text;
  char chunk[4096];
  pollfd entry{fd_, POLLIN, 0};
  while (::poll(&entry, 1, milliseconds) > 0) {
    const ssize_t got = ::recv(fd_, chunk, sizeof chunk, 0);
    if (got <= 0) break;
    text.append(chunk, static_cast<size_t>(got));
  }
  return text;
}

void Connection::resetAtEnd() const {
  const linger now{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

int sendGarbage(const Listener& listener, unsigned seed) {
  std::mt19937 random(seed);
  std::string noise(1 + random() % 3000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  // magic, version 1, type, length, 0: as base/handshake.h has it
  const std::string head("TUTI\1\0\1\0", 8);
  int connected = 0;
  for (const std::string& text :
       {std::string(), std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), noise, "TUTI" + noise,
        head + std::string("\xff\xff\xff\x7f\0\0\0\0", 8), head.substr(0, 6)}) {
    const Connection one(listener);
    if (!one.isOpen()) continue;
    ++connected;
    if (random() % 2 == 0) one.resetAtEnd();
    if (!text.empty()) one.say(text);
    if (random() % 4 == 0) one.hear(5);
  }
  return connected;
}

}  // namespace tutti::system_test
