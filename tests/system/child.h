// Ranks as processes of their own: forked before the library is used, with a pipe for what they have to say.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

namespace tutti::system_test {

/// What a child sees of its parent.
class ChildSide {
 public:
  ChildSide(int readFd, int writeFd) : readFd_(readFd), writeFd_(writeFd) {}
  /// A line to the parent.
  void say(const std::string& line) const;
  /// Bytes from the parent; exits when the parent is gone.
  void receive(void* data, size_t bytes) const;

 private:
  int readFd_;
  int writeFd_;
};

/// A forked process. It is killed and reaped at the end, if nobody waited for it before.
class Child {
 public:
  using Clock = std::chrono::steady_clock;
  using Body = std::function<int(const ChildSide&)>;

  /// `body` returns the exit status. The calling process must not have used the library yet.
  explicit Child(const Body& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void send(const void* data, size_t bytes) const;
  /// The next line, without its end. False: none until the deadline, or the child has closed its side.
  bool readLine(std::string& line, Clock::time_point deadline);
  /// Lines until one starts with `prefix`; that one, without the prefix. Empty and a test failure when there
  /// is none.
  std::string expectLine(const std::string& prefix, Clock::time_point deadline);
  void kill(int signal) const;
  /// The status as from waitpid, or -1 when it still runs at the deadline.
  int wait(Clock::time_point deadline);

 private:
  pid_t pid_ = -1;
  int readFd_ = -1;
  int writeFd_ = -1;
  std::string buffered_;
};

inline Child::Clock::time_point in(std::chrono::milliseconds time) { return Child::Clock::now() + time; }

}  // namespace tutti::system_test
