#include "tutti_ras/ras_client.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kSocketPrefix = "@tutti-ras-";
constexpr int kExtraSeconds = 5;
constexpr const char* kHello = "CLIENT PROTOCOL 2\n";

/// A socket that is closed at the end of its scope.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

/// Anybody may make a socket whose name looks like a job's: only this user's and root's are asked. (Root asks
/// all.)
bool mayBeAsked(int fd, std::string& error) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    error = std::strerror(errno);
    return false;
  }
  if (::geteuid() == 0 || peer.uid == ::geteuid() || peer.uid == 0) return true;
  error = "it is a process of user " + std::to_string(peer.uid);
  return false;
}

/// What came from a process that may be anything must not steer the terminal.
void makePrintable(std::string& text) {
  for (char& c : text)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f) c = '?';
}

int connectUnix(const std::string& name, std::string& error) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof address.sun_path) return -1;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{2, 0};  // a stopped process's backlog may be full
  if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (fd >= 0 && ::connect(fd, reinterpret_cast<sockaddr*>(&address), length) == 0) {
    if (mayBeAsked(fd, error)) return fd;
  } else {
    error = std::strerror(errno);
  }
  if (fd >= 0) ::close(fd);
  return -1;
}

int connectTcp(const RasTarget& target, std::string& error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  int code = ::getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &found);
  // As the library: known without anybody's help.
  if (code != 0 && target.host == "localhost")
    code = ::getaddrinfo("127.0.0.1", target.port.c_str(), &hints, &found);
  if (code != 0) {
    error = ::gai_strerror(code);
    return -1;
  }
  int fd = -1;
  for (const addrinfo* one = found; one != nullptr && fd < 0; one = one->ai_next) {
    fd = ::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
    if (fd < 0) continue;
    const timeval limit{5, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);  // also of connect
    if (::connect(fd, one->ai_addr, one->ai_addrlen) == 0) break;
    error = std::strerror(errno);
    ::close(fd);
    fd = -1;
  }
  ::freeaddrinfo(found);
  return fd;
}

bool sendAll(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t sent = ::send(fd, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    done += static_cast<size_t>(sent);
  }
  return true;
}

/// Reads into `buffer` until it holds a whole line, or (`toEnd`) until the stream ends.
bool receive(int fd, std::string& buffer, bool toEnd, Clock::time_point deadline, std::string& error) {
  char chunk[4096];
  while (toEnd || buffer.find('\n') == std::string::npos) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{fd, POLLIN, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::max<long>(0, left)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      error = "no answer in time";
      return false;
    }
    const ssize_t got = ::recv(fd, chunk, sizeof chunk, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = std::strerror(errno);
    if (got == 0 && !toEnd) error = "the connection was closed";
    if (got <= 0) return got == 0 && toEnd;
    buffer.append(chunk, static_cast<size_t>(got));
  }
  return true;
}

}  // namespace

std::string RasTarget::text() const {
  return unixName.empty() ? host + ":" + port : "process " + std::to_string(pid);
}

static RasReply askUnfiltered(const RasTarget& target, const RasQuestion& question) {
  RasReply reply;
  const Socket socket(target.unixName.empty() ? connectTcp(target, reply.error)
                                              : connectUnix(target.unixName, reply.error));
  if (socket.get() < 0) {
    reply.error = "cannot connect to " + target.text() + ": " + reply.error;
    return reply;
  }
  const auto deadline = Clock::now() + std::chrono::seconds(question.timeoutSeconds + kExtraSeconds);
  std::vector<std::pair<std::string, std::string>> steps = {
      {kHello, "SERVER PROTOCOL "}, {"TIMEOUT " + std::to_string(question.timeoutSeconds) + "\n", "OK"}};
  if (question.json) steps.emplace_back("SET FORMAT json\n", "OK");
  for (const auto& [say, expect] : steps) {
    std::string line;
    if (!sendAll(socket.get(), say)) reply.error = std::strerror(errno);
    if (!reply.error.empty() || !receive(socket.get(), line, false, deadline, reply.error)) {
      reply.error = target.text() + ": " + reply.error;
      return reply;
    }
    if (line.rfind(expect, 0) != 0) {
      reply.error =
          target.text() + " answers \"" + line.substr(0, line.find('\n')) + "\": it is no RAS server";
      return reply;
    }
  }
  if (!sendAll(socket.get(), question.verbose ? "VERBOSE STATUS\n" : "STATUS\n") ||
      !receive(socket.get(), reply.text, true, deadline, reply.error)) {
    if (reply.error.empty()) reply.error = std::strerror(errno);
    reply.error = target.text() + ": " + reply.error;
    reply.text.clear();
  } else if (reply.text.empty()) {
    reply.error = target.text() + ": the connection was closed without an answer";
  }
  return reply;
}

RasReply askRas(const RasTarget& target, const RasQuestion& question) {
  RasReply reply = askUnfiltered(target, question);
  makePrintable(reply.text);
  makePrintable(reply.error);
  return reply;
}

std::vector<bool> silentTargets(const std::vector<RasTarget>& targets, std::chrono::milliseconds limit) {
  std::vector<bool> silent(targets.size(), false);
  std::vector<std::unique_ptr<Socket>> sockets;
  std::vector<pollfd> waiting;
  for (size_t i = 0; i < targets.size(); ++i) {
    std::string error;
    const int fd =
        targets[i].unixName.empty() ? connectTcp(targets[i], error) : connectUnix(targets[i].unixName, error);
    sockets.push_back(std::make_unique<Socket>(fd));
    silent[i] = fd >= 0 && sendAll(fd, kHello);
    waiting.push_back({silent[i] ? fd : -1, POLLIN, 0});
  }
  const auto deadline = Clock::now() + limit;
  while (std::find(silent.begin(), silent.end(), true) != silent.end()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready = ::poll(waiting.data(), waiting.size(), static_cast<int>(std::max<long>(0, left)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].fd < 0 || waiting[i].revents == 0) continue;
      silent[i] = false;  // whatever it says: askRas looks at it
      waiting[i].fd = -1;
    }
  }
  return silent;
}

std::vector<RasTarget> localRasTargets() {
  std::vector<RasTarget> targets;
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    const size_t at = line.find(kSocketPrefix);
    if (at == std::string::npos) continue;
    // Num RefCount Protocol Flags Type St Inode Path; a connected end has the same path, but not the flag
    // that says that it listens.
    std::istringstream fields(line);
    std::string number, references, protocol, flags;
    fields >> number >> references >> protocol >> flags;
    if ((std::strtoul(flags.c_str(), nullptr, 16) & 0x10000) == 0) continue;
    RasTarget target;
    target.unixName = line.substr(at + 1);
    target.pid = std::strtol(line.c_str() + at + std::strlen(kSocketPrefix), nullptr, 10);
    targets.push_back(target);
  }
  std::sort(targets.begin(), targets.end(), [](const auto& a, const auto& b) { return a.pid < b.pid; });
  return targets;
}

}  // namespace tutti
