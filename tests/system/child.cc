#include "system/child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <thread>

namespace tutti::system_test {
namespace {

void writeAll(int fd, const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::write(fd, next, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;  // the other side is gone: it will be noticed there
    next += done;
    bytes -= static_cast<size_t>(done);
  }
}

}  // namespace

void ChildSide::say(const std::string& line) const {
  const std::string text = line + "\n";
  writeAll(writeFd_, text.data(), text.size());
}

void ChildSide::receive(void* data, size_t bytes) const {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::read(readFd_, next, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) _exit(99);
    next += done;
    bytes -= static_cast<size_t>(done);
  }
}

Child::Child(const Body& body) {
  int down[2];
  int up[2];
  // Down to the child a socket, so that writing to a dead one is no SIGPIPE here.
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, down) != 0 || ::pipe2(up, O_CLOEXEC) != 0) {
    ADD_FAILURE() << "pipe2 failed";
    return;
  }
  std::fflush(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::signal(SIGPIPE, SIG_IGN);
    ::close(down[1]);
    ::close(up[0]);
    const int status = body(ChildSide(down[0], up[1]));
    std::fflush(nullptr);
    _exit(status);
  }
  ::close(down[0]);
  ::close(up[1]);
  writeFd_ = down[1];
  readFd_ = up[0];
}

Child::~Child() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(readFd_);
  ::close(writeFd_);
}

void Child::send(const void* data, size_t bytes) const {
  // What the child does not read any more is noticed where its lines are expected.
  (void)::send(writeFd_, data, bytes, MSG_NOSIGNAL);
}

void Child::kill(int signal) const { ::kill(pid_, signal); }

bool Child::readLine(std::string& line, Clock::time_point deadline) {
  while (true) {
    const size_t end = buffered_.find('\n');
    if (end != std::string::npos) {
      line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return true;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{readFd_, POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(std::max<long>(left, 0))) <= 0) return false;
    char chunk[4096];
    const ssize_t got = ::read(readFd_, chunk, sizeof chunk);
    if (got <= 0) return false;
    buffered_.append(chunk, static_cast<size_t>(got));
  }
}

std::string Child::expectLine(const std::string& prefix, Clock::time_point deadline) {
  std::string line;
  std::string seen;
  while (readLine(line, deadline)) {
    if (line.rfind(prefix, 0) == 0) return line.substr(prefix.size());
    seen += line + "\n";
  }
  ADD_FAILURE() << "no line \"" << prefix << "...\" from process " << pid_ << "; it said:\n" << seen;
  return {};
}

int Child::wait(Clock::time_point deadline) {
  int status = 0;
  while (true) {
    const pid_t done = ::waitpid(pid_, &status, WNOHANG);
    if (done == pid_) {
      pid_ = -1;
      return status;
    }
    if (done < 0 || Clock::now() >= deadline) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace tutti::system_test
