#include "base/log.h"

#include <gmock/gmock.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/base_test.h"
#include "base/identity.h"

namespace tutti::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

/// Logs into a file for a test's life.
class LogFile {
 public:
  explicit LogFile(const std::string& level, const std::string& subsystems = "")
      : path_(temporaryPath("log")),
        file_("NCCL_DEBUG_FILE", path_),
        level_("NCCL_DEBUG", level),
        subsystems_("NCCL_DEBUG_SUBSYS", subsystems) {}
  ~LogFile() { ::unlink(path_.c_str()); }
  std::string text() const { return readFile(path_); }

 private:
  std::string path_;
  ScopedEnv file_, level_, subsystems_;
};

TEST(Log, LinesHaveTheFormOfNccl) {
  const LogFile log("INFO");
  setLogDevice(3);
  logInfo(Subsystem::init, "hello {}", 5);
  setLogDevice(-1);
  logWarn("careful: {}", "why");
  const std::string prefix = fmt::format("{}:{}:{} ", hostName(), ::getpid(), ::syscall(SYS_gettid));
  EXPECT_EQ(log.text(), prefix + "[3] NCCL INFO hello 5\n" + prefix + "[-1] NCCL WARN careful: why\n");
}

TEST(Log, LevelsIncludeTheOnesBefore) {
  const auto written = [](const char* level) {
    const LogFile log(level, "ALL");
    logTrace(Subsystem::net, "T");
    logInfo(Subsystem::net, "I");
    logWarn("W");
    std::string marks;
    for (const char c : log.text())
      if (c == '\n') marks += '|';
    return marks.size();
  };
  EXPECT_EQ(written(""), 0u);
  EXPECT_EQ(written("VERSION"), 0u);
  EXPECT_EQ(written("WARN"), 1u);
  EXPECT_EQ(written("warn"), 1u);
  EXPECT_EQ(written("Info"), 2u);
  EXPECT_EQ(written("TRACE"), 3u);
}

TEST(Log, SubsystemsAreChosenAndExcluded) {
  const auto written = [](const char* subsystems) {
    const LogFile log("INFO", subsystems);
    std::string all;
    logInfo(Subsystem::init, "A");
    logInfo(Subsystem::net, "B");
    logInfo(Subsystem::shm, "C");
    for (const char c : {'A', 'B', 'C'})
      if (log.text().find(std::string("INFO ") + c) != std::string::npos) all += c;
    return all;
  };
  EXPECT_EQ(written(""), "A") << "INIT, BOOTSTRAP and ENV unless told otherwise";
  EXPECT_EQ(written("NET,SHM"), "BC");
  EXPECT_EQ(written("net, Shm"), "BC");
  EXPECT_EQ(written("ALL"), "ABC");
  EXPECT_EQ(written("^NET"), "AC");
  EXPECT_EQ(written("^NET,INIT"), "C");
}

TEST(Log, NamesUnknownSubsystemsAndLevels) {
  {
    const LogFile log("WARN", "NET,NONSENSE");
    logInfo(Subsystem::net, "x");
    logWarn("y");
    EXPECT_THAT(log.text(), HasSubstr("NCCL_DEBUG_SUBSYS: no such subsystem: NONSENSE"));
  }
  const LogFile log("LOUD");
  EXPECT_THAT(log.text(), HasSubstr("NCCL_DEBUG=LOUD (environment): not one of NONE | VERSION"));
}

TEST(Log, FileNamesTakeHostAndProcess) {
  const std::string base = temporaryPath("x");
  {
    const ScopedEnv file("NCCL_DEBUG_FILE", base + ".%h.%p.%%"), level("NCCL_DEBUG", "WARN");
    logWarn("here");
  }
  const std::string path = fmt::format("{}.{}.{}.%", base, hostName(), ::getpid());
  EXPECT_THAT(readFile(path), EndsWith("NCCL WARN here\n"));
  ::unlink(path.c_str());
}

TEST(Log, FallsBackToStandardOutputWhenTheFileCannotBeOpened) {
  ::testing::internal::CaptureStdout();
  {
    const ScopedEnv file("NCCL_DEBUG_FILE", "/nonexistent/dir/log"), level("NCCL_DEBUG", "WARN");
    logWarn("still here");
  }
  const std::string out = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(out, HasSubstr("NCCL_DEBUG_FILE: open /nonexistent/dir/log: No such file or directory"));
  EXPECT_THAT(out, HasSubstr("still here"));
}

TEST(Log, TimestampsComeFirst) {
  const ScopedEnv format("NCCL_DEBUG_TIMESTAMP_FORMAT", "[%F %T.%3f]");
  const LogFile log("WARN");
  logWarn("x");
  EXPECT_THAT(log.text(), ContainsRegex("^\\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}\\.[0-9]{3}\\] "));
}

TEST(Log, VersionIsPrintedOnce) {
  const LogFile log("VERSION");
  logVersionOnce();
  logVersionOnce();
  EXPECT_EQ(log.text(), fmt::format("Tutti version {0}, NCCL version 2.28.9+tutti{0}\n", tuttiVersion()));
}

TEST(Log, LinesOfManyThreadsStayWhole) {
  const LogFile log("WARN");
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 50; ++i) logWarn("{}", std::string(300, static_cast<char>('a' + t)));
    });
  for (auto& thread : threads) thread.join();
  std::istringstream lines(log.text());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const std::string text = line.substr(line.find("WARN ") + 5);
    EXPECT_EQ(text, std::string(300, text[0]));
  }
  EXPECT_EQ(count, 400);
}

TEST(Log, AClosedOutputDoesNotKillTheProcess) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGPIPE, SIG_DFL);
    int ends[2];
    if (::pipe(ends) != 0) ::_exit(2);
    ::close(ends[0]);
    ::dup2(ends[1], STDOUT_FILENO);
    const ScopedEnv level("NCCL_DEBUG", "WARN");
    logWarn("nobody reads this");
    sigset_t pending;
    ::sigpending(&pending);
    ::_exit(::sigismember(&pending, SIGPIPE));
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Log, KeepsErrno) {
  const LogFile log("WARN");
  errno = EXDEV;
  logWarn("x");
  EXPECT_EQ(errno, EXDEV);
}

}  // namespace
}  // namespace tutti::testing
