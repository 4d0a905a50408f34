// Calls that do not match, operations that do not move, and what a running job says of itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "support/command.h"
#include "system/process_probe.h"
#include "system/ranks.h"
#include "tutti/tutti.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr auto kPatience = 30s;

float* allocate(size_t count, const ChildSide& parent) {
  void* data = nullptr;
  must(cudaMalloc(&data, count * sizeof(float)), "cudaMalloc", parent);
  return static_cast<float*>(data);
}

/// Waits until the communicator has failed; says "error MESSAGE" and aborts.
int sayError(Rank& self, const ChildSide& parent, ncclResult_t result = ncclSuccess) {
  ncclResult_t state = result;
  while (state == ncclSuccess) {
    must(ncclCommGetAsyncError(self.comm, &state), "ncclCommGetAsyncError", parent);
    std::this_thread::sleep_for(1ms);
  }
  parent.say(std::string("error ") + ncclGetErrorString(state) + ": " + ncclGetLastError(self.comm));
  must(ncclCommAbort(self.comm), "ncclCommAbort", parent);
  cudaStreamSynchronize(nullptr);
  return 0;
}

std::string errorOf(RankProcesses& ranks, int rank) {
  return ranks[rank].expectLine("error ", in(kPatience));
}

using Call = std::function<ncclResult_t(Rank&, float* data)>;

struct Mismatch {
  const char* name;
  Path path;
  Call usual;      // of all ranks but the last
  Call different;  // of the last one
  std::vector<std::string> named;
};

class MismatchedCalls : public testing::TestWithParam<Mismatch> {};

TEST_P(MismatchedCalls, AreAnErrorThatNamesBothBeforeAnythingMoves) {
  const Mismatch& test = GetParam();
  const Settings settings{{"TUTTI_CHECK", "1"}, {"TUTTI_STALL_WARN", "0.4"}};
  RankProcesses ranks(3, test.path, [&test](Rank& self, const ChildSide& parent) {
    constexpr size_t kFloats = 3 * 400000;
    float* data = allocate(2 * kFloats, parent);
    must(ncclAllReduce(data, data, 10, ncclFloat, ncclSum, self.comm, nullptr), "ncclAllReduce", parent);
    must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
    for (size_t i = 0; i < 2 * kFloats; ++i) data[i] = static_cast<float>(self.rank + 1);
    const ncclResult_t result = (self.rank == self.ranks - 1 ? test.different : test.usual)(self, data);
    const int status = sayError(self, parent, result);
    size_t touched = 0;
    for (size_t i = 0; i < 2 * kFloats; ++i) touched += data[i] != static_cast<float>(self.rank + 1) ? 1 : 0;
    parent.say("touched " + std::to_string(touched));
    return status;
  });
  for (int rank = 0; rank < 3; ++rank) {
    const std::string message = errorOf(ranks, rank);
    for (const std::string& part : test.named) EXPECT_THAT(message, HasSubstr(part)) << "rank " << rank;
    EXPECT_EQ(ranks[rank].expectLine("touched ", in(kPatience)), "0") << "rank " << rank;
  }
  ranks.expectSuccess(kPatience);
}

constexpr size_t kMany = 400000;
ncclResult_t allReduce(Rank& r, float* d, size_t count = kMany, ncclDataType_t type = ncclFloat,
                       ncclRedOp_t op = ncclSum) {
  return ncclAllReduce(d, d, count, type, op, r.comm, nullptr);
}

std::vector<Mismatch> mismatches() {
  const auto shm = Path::sharedMemory;
  const auto net = Path::sockets;
  const Call usual = [](Rank& r, float* d) { return allReduce(r, d); };
  const Call gather = [](Rank& r, float* d) {
    return ncclAllGather(d, d + 3 * kMany, kMany, ncclFloat, r.comm, nullptr);
  };
  const Call fewer = [](Rank& r, float* d) { return allReduce(r, d, kMany - 1); };
  const Call none = [](Rank& r, float* d) { return allReduce(r, d, 0); };
  const Call type = [](Rank& r, float* d) { return allReduce(r, d, kMany, ncclInt32); };
  const Call op = [](Rank& r, float* d) { return allReduce(r, d, kMany, ncclFloat, ncclMax); };
  const auto scatter = [](size_t count) {
    return [count](Rank& r, float* d) {
      return ncclReduceScatter(d, d + 3 * kMany, count, ncclFloat, ncclSum, r.comm, nullptr);
    };
  };
  const auto gatherv = [](size_t each) {
    return [each](Rank& r, float* d) {
      const size_t counts[3] = {each, each, each};
      return tuttiAllGatherv(d, d + 3 * kMany, each, counts, nullptr, ncclFloat, r.comm, nullptr);
    };
  };
  const auto broadcast = [](int root) {
    return [root](Rank& r, float* d) { return ncclBroadcast(d, d, 3, ncclFloat, root, r.comm, nullptr); };
  };
  return {
      {"CollectiveSharedMemory",
       shm,
       usual,
       gather,
       {"AllReduce of 400000 x float", "AllGather of 400000", "rank 2"}},
      {"CollectiveSockets",
       net,
       usual,
       gather,
       {"AllReduce of 400000 x float", "AllGather of 400000", "rank 2"}},
      {"CountSockets", net, scatter(400000), scatter(399999), {"399999", "400000", "rank 0", "rank 2"}},
      {"CountSharedMemory", shm, usual, fewer, {"399999", "400000", "rank 0", "rank 2", "collective 2"}},
      {"CountZero", shm, usual, none, {"AllReduce of 0 x float", "400000", "rank 2"}},
      {"CountsZero", shm, gatherv(kMany), gatherv(0), {"AllGather of 0 x float", "1200000", "rank 2"}},
      {"Type", net, usual, type, {"x float", "x int32", "rank 0", "rank 2"}},
      {"Operator", shm, usual, op, {"(sum)", "(max)", "rank 0", "rank 2"}},
      {"RootOfFewBytes", shm, broadcast(0), broadcast(1), {"root 0", "root 1", "rank 0", "rank 2"}},
  };
}

INSTANTIATE_TEST_SUITE_P(Calls, MismatchedCalls, testing::ValuesIn(mismatches()),
                         [](const auto& each) { return std::string(each.param.name); });

class BothPaths : public testing::TestWithParam<Path> {};

TEST_P(BothPaths, CheckedMessagesOfDifferentSizesAreAnError) {
  const Settings settings{{"TUTTI_CHECK", "1"}};
  RankProcesses ranks(2, GetParam(), [](Rank& self, const ChildSide& parent) {
    float* data = allocate(kMany, parent);
    // Slot after slot would fit: only the last one tells the difference.
    const ncclResult_t result = self.rank == 0 ? ncclSend(data, kMany, ncclFloat, 1, self.comm, nullptr)
                                               : ncclRecv(data, 131072, ncclFloat, 0, self.comm, nullptr);
    return sayError(self, parent, result);
  });
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(errorOf(ranks, rank),
                AllOf(HasSubstr("sends 1600000 bytes"), HasSubstr("receives 524288 bytes")));
  ranks.expectSuccess(kPatience);
}

TEST_P(BothPaths, CheckedCallsThatMatchDoWhatTheyAlwaysDo) {
  const Settings settings{{"TUTTI_CHECK", "1"}};
  RankProcesses ranks(3, GetParam(), [](Rank& self, const ChildSide& parent) {
    constexpr size_t kCount = 50000;
    float* data = allocate(4 * kCount, parent);
    const int next = (self.rank + 1) % 3;
    const int previous = (self.rank + 2) % 3;
    for (int call = 0; call < 20; ++call) {
      for (size_t i = 0; i < kCount; ++i) data[i] = static_cast<float>(self.rank + call);
      must(ncclGroupStart(), "ncclGroupStart", parent);
      must(ncclSend(data, kCount, ncclFloat, next, self.comm, nullptr), "ncclSend", parent);
      must(ncclSend(data, 1, ncclFloat, next, self.comm, nullptr), "ncclSend", parent);
      must(ncclSend(data, 2, ncclFloat, self.rank, self.comm, nullptr), "ncclSend", parent);
      must(ncclRecv(data + 3 * kCount, 2, ncclFloat, self.rank, self.comm, nullptr), "ncclRecv", parent);
      must(ncclAllReduce(data, data + kCount, kCount, ncclFloat, ncclSum, self.comm, nullptr),
           "ncclAllReduce", parent);
      must(ncclRecv(data + 2 * kCount, kCount, ncclFloat, previous, self.comm, nullptr), "ncclRecv", parent);
      must(ncclRecv(data + 3 * kCount + 2, 1, ncclFloat, previous, self.comm, nullptr), "ncclRecv", parent);
      must(ncclGroupEnd(), "ncclGroupEnd", parent);
      must(ncclAllReduce(nullptr, nullptr, 0, ncclFloat, ncclSum, self.comm, nullptr), "ncclAllReduce",
           parent);
      must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
      if (data[2 * kCount - 1] != static_cast<float>(3 + 3 * call)) return 2;
      if (data[3 * kCount - 1] != static_cast<float>(previous + call)) return 3;
      if (data[3 * kCount + 1] != static_cast<float>(self.rank + call)) return 4;
      if (data[3 * kCount + 2] != static_cast<float>(previous + call)) return 5;
    }
    must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
    return 0;
  });
  ranks.expectSuccess(kPatience);
}

TEST_P(BothPaths, CheckedSendAgainstACollectiveIsAnError) {
  const Settings settings{{"TUTTI_CHECK", "1"}, {"TUTTI_STALL_WARN", "0.4"}};
  RankProcesses ranks(2, GetParam(), [](Rank& self, const ChildSide& parent) {
    // More than slots and the kernel's socket buffers (tens of megabytes, where they have grown) can take: a
    // send that they take whole has ended, and its rank may yet call the collective.
    float* data = allocate(40 * kMany, parent);
    const ncclResult_t result =
        self.rank == 0 ? ncclSend(data, 40 * kMany, ncclFloat, 1, self.comm, nullptr) : allReduce(self, data);
    return sayError(self, parent, result);
  });
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(errorOf(ranks, rank),
                AllOf(HasSubstr("Send of 64000000 bytes to rank 1"), HasSubstr("AllReduce of 400000 x float"),
                      HasSubstr("do not match")));
  ranks.expectSuccess(kPatience);
}

/// A file for a test's log lines.
class LogFile {
 public:
  LogFile() : path_("/tmp/tutti-observability-" + std::to_string(::getpid()) + ".log") {
    ::unlink(path_.c_str());
  }
  ~LogFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }
  std::string text() const {
    std::ifstream file(path_);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
  }
  /// Waits for a text.
  bool contains(const std::string& part, std::chrono::milliseconds time) const {
    const auto deadline = in(time);
    while (text().find(part) == std::string::npos) {
      if (Child::Clock::now() > deadline) return false;
      std::this_thread::sleep_for(10ms);
    }
    return true;
  }

 private:
  std::string path_;
};

TEST_P(BothPaths, AFailureIsPrintedWithoutAnybodyAskingAndAnAbortIsNot) {
  const LogFile log;
  const Settings settings{{"NCCL_DEBUG_FILE", log.path()}};
  RankProcesses ranks(3, GetParam(), [](Rank& self, const ChildSide& parent) {
    float* data = allocate(kMany, parent);
    ncclComm_t own = nullptr;
    must(ncclCommSplit(self.comm, self.rank, 0, &own, nullptr), "ncclCommSplit", parent);
    must(ncclCommAbort(own), "ncclCommAbort", parent);
    must(allReduce(self, data), "ncclAllReduce", parent);
    must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
    parent.say("there");
    char go = 0;
    parent.receive(&go, 1);
    must(ncclCommAbort(self.comm), "ncclCommAbort", parent);
    return 0;
  });
  for (int rank = 0; rank < 3; ++rank) ranks[rank].expectLine("there", in(kPatience));
  ranks[2].kill(SIGKILL);
  EXPECT_TRUE(log.contains("rank 2 (host", 10s)) << log.text();
  for (const int rank : {0, 1}) ranks[rank].send("x", 1);
  for (const int rank : {0, 1}) EXPECT_EQ(ranks[rank].wait(in(kPatience)), 0) << "rank " << rank;
  EXPECT_THAT(log.text(), AllOf(HasSubstr("died"), Not(HasSubstr("abort"))));  // by whatever words
}

TEST_P(BothPaths, AStalledOperationIsReportedWithWhoWaitsForWhomAndGoesOn) {
  const LogFile log;
  const Settings settings{{"TUTTI_STALL_WARN", "0.3"}, {"NCCL_DEBUG_FILE", log.path()}};
  RankProcesses ranks(3, GetParam(), [](Rank& self, const ChildSide& parent) {
    float* data = allocate(kMany, parent);
    must(allReduce(self, data), "ncclAllReduce", parent);
    if (self.rank == 2) {
      parent.say("late");
      char go = 0;
      parent.receive(&go, 1);
    }
    must(allReduce(self, data), "ncclAllReduce", parent);
    must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
    must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
    return 0;
  });
  ranks[2].expectLine("late", in(kPatience));
  EXPECT_TRUE(log.contains("rank 2 has not called collective 2", 10s)) << log.text();
  EXPECT_THAT(log.text(),
              ContainsRegex("rank [01]: AllReduce of 400000 x float \\(sum\\), collective 2 on "
                            "communicator '[^']*' \\(3 ranks\\), has not moved for 0\\.[0-9] s: waits for"));
  EXPECT_THAT(log.text(),
              ContainsRegex("rank 2 \\(host [^ ]*, pid [0-9]+\\) has called 1 collective and is idle"));
  ranks[2].send("x", 1);
  ranks.expectSuccess(kPatience);
  EXPECT_THAT(log.text(), Not(HasSubstr("rank 2: AllReduce")));
}

TEST_P(BothPaths, ATimeOutTurnsAStalledOperationIntoAnErrorWithTheReport) {
  const Settings settings{{"TUTTI_TIMEOUT", "0.3"}};
  RankProcesses ranks(2, GetParam(), [](Rank& self, const ChildSide& parent) {
    float* data = allocate(kMany, parent);
    const ncclResult_t result =
        self.rank == 0 ? ncclRecv(data, 100, ncclFloat, 1, self.comm, nullptr) : ncclSuccess;
    return sayError(self, parent, result);
  });
  EXPECT_THAT(errorOf(ranks, 0),
              AllOf(HasSubstr("TUTTI_TIMEOUT"), HasSubstr("Recv of 400 bytes from rank 1"),
                    HasSubstr("waits for data from rank 1, step 1 of 1"), HasSubstr("is idle since")));
  EXPECT_THAT(errorOf(ranks, 1), HasSubstr("rank 0"));  // the other side hears of it
  ranks.expectSuccess(kPatience);
}

TEST_P(BothPaths, WaitingForARankThatHasLeftIsAnError) {
  const Settings settings{{"TUTTI_STALL_WARN", "0.3"}};
  RankProcesses ranks(3, GetParam(), [](Rank& self, const ChildSide& parent) {
    float* data = allocate(kMany, parent);
    if (self.rank == 2) {
      must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
      return 0;
    }
    return sayError(self, parent, allReduce(self, data));
  });
  // The stall report says it, or the connection, which may notice that its messages cannot be delivered
  // first.
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(errorOf(ranks, rank),
                AllOf(HasSubstr("rank 2"), AnyOf(HasSubstr("has left"), HasSubstr("without goodbye"))));
  ranks.expectSuccess(kPatience);
}

// Not of the same count: on two ranks these two send messages of the same sizes, and only the check tells
// them apart.
TEST_P(BothPaths, LargeCallsThatDoNotMatchAreReportedWithoutTheCheck) {
  constexpr size_t kOther = kMany - 1000;
  const Settings settings{{"TUTTI_TIMEOUT", "0.4"}};
  RankProcesses ranks(2, GetParam(), [](Rank& self, const ChildSide& parent) {
    float* data = allocate(3 * kMany, parent);
    const ncclResult_t result =
        self.rank == 0 ? allReduce(self, data)
                       : ncclAllGather(data, data + kMany, kOther, ncclFloat, self.comm, nullptr);
    return sayError(self, parent, result);
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_THAT(errorOf(ranks, rank), HasSubstr("do not match"));
  ranks.expectSuccess(kPatience);
}

// --- tutti-ras and the RAS protocol ---

/// Runs the tool that lies beside this program.
test::Outcome tuttiRas(const std::string& arguments) {
  return test::runCommand(test::programBeside("tutti-ras") + " " + arguments);
}

/// A TCP connection to the RAS port, or to a listener of the test's own.
class Tcp {
 public:
  static Tcp listenAnywhere() {
    Tcp one(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = loopback(0);
    EXPECT_EQ(::bind(one.fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(one.fd_, 4), 0);
    return one;
  }
  static Tcp connect(int port) {
    Tcp one(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = loopback(port);
    const timeval limit{5, 0};
    ::setsockopt(one.fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (::connect(one.fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) one.close();
    return one;
  }
  Tcp(Tcp&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Tcp() { close(); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool isOpen() const { return fd_ >= 0; }
  int port() const {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    return ntohs(address.sin_port);
  }
  void say(const std::string& text) const { (void)!::send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  std::string line() const {
    std::string text;
    for (char c = 0; ::recv(fd_, &c, 1, 0) == 1 && c != '\n';) text.push_back(c);
    return text;
  }
  std::string rest() const {
    std::string text;
    char chunk[4096];
    for (ssize_t got = 0; (got = ::recv(fd_, chunk, sizeof chunk, 0)) > 0;)
      text.append(chunk, static_cast<size_t>(got));
    return text;
  }

 private:
  explicit Tcp(int fd) : fd_(fd) {}
  static sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  int fd_;
};

int freePort() { return Tcp::listenAnywhere().port(); }

/// Ranks 0 and 1 wait in an AllReduce for rank 2, which waits for a byte of the test.
int waitForRankTwo(Rank& self, const ChildSide& parent) {
  float* data = allocate(kMany, parent);
  must(allReduce(self, data, 5), "ncclAllReduce", parent);
  must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
  char go = 0;
  if (self.rank != 2) must(allReduce(self, data), "ncclAllReduce", parent);
  parent.say("there");
  if (self.rank == 2) {
    parent.receive(&go, 1);
    must(allReduce(self, data), "ncclAllReduce", parent);
  }
  must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
  must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
  return 0;
}

TEST_P(BothPaths, TuttiRasShowsEveryRanksPosition) {
  const Settings settings{{"TUTTI_STALL_WARN", "0.2"}, {"NCCL_DEBUG_FILE", "/dev/null"}};
  RankProcesses ranks(3, GetParam(), waitForRankTwo);
  for (int rank = 0; rank < 3; ++rank) ranks[rank].expectLine("there", in(kPatience));
  std::this_thread::sleep_for(500ms);
  for (int asked = 0; asked < 3; ++asked) {
    const test::Outcome ran = tuttiRas("--pid " + std::to_string(ranks[asked].pid()));
    EXPECT_EQ(ran.status, 3) << ran.output;  // it is stalled
    EXPECT_THAT(ran.output,
                AllOf(HasSubstr("3 process(es)"), HasSubstr("3 ranks: STALLED"),
                      HasSubstr("PROBLEM: rank 0: AllReduce of 400000 x float (sum), collective 2")));
    for (int rank = 0; rank < 2; ++rank)
      EXPECT_THAT(ran.output, ContainsRegex("rank " + std::to_string(rank) + " \\(host [^ ]+, pid " +
                                            std::to_string(ranks[rank].pid()) +
                                            "\\) device 0 is in AllReduce of 400000 x float \\(sum\\) \\(its "
                                            "collective 2\\), not moved for 0\\.[0-9] s, waits for"));
    EXPECT_THAT(ran.output, ContainsRegex("pid " + std::to_string(ranks[2].pid()) +
                                          "\\) device 0 has called 1 collective and is idle since"));
  }
  const test::Outcome json = tuttiRas("--json --pid " + std::to_string(ranks[1].pid()));
  EXPECT_THAT(json.output,
              AllOf(HasSubstr("{\"jobs\": [{"), HasSubstr("\"size\": 3, \"state\": \"STALLED\""),
                    HasSubstr("\"state\": \"idle\", \"collectives_called\": 1"),
                    HasSubstr("\"call\": \"AllReduce of 400000 x float (sum)\", \"bytes\": 1600000")));
  ranks[2].send("x", 1);
  ranks.expectSuccess(kPatience);
  EXPECT_EQ(tuttiRas("--pid " + std::to_string(::getpid())).status, 1);
}

TEST_P(BothPaths, TuttiRasShowsADeadRank) {
  RankProcesses ranks(3, GetParam(), [](Rank& self, const ChildSide& parent) {
    parent.say("there");
    char go = 0;
    parent.receive(&go, 1);
    return sayError(self, parent);
  });
  for (int rank = 0; rank < 3; ++rank) ranks[rank].expectLine("there", in(kPatience));
  ranks[2].kill(SIGKILL);
  test::Outcome ran;
  for (int i = 0; i < 50 && ran.status != 3; ++i) ran = tuttiRas("--pid " + std::to_string(ranks[1].pid()));
  EXPECT_EQ(ran.status, 3);
  EXPECT_THAT(ran.output,
              ContainsRegex("PROBLEM: rank 2 \\(host [^ ]+, pid [0-9]+\\) died: connection closed"));
  for (int rank = 0; rank < 2; ++rank) {
    ranks[rank].send("x", 1);
    EXPECT_THAT(errorOf(ranks, rank), HasSubstr("rank 2"));
  }
}

TEST(TuttiRas, NamesAStoppedProcessAndDoesNotWaitForItLong) {
  RankProcesses ranks(3, Path::sharedMemory, [](Rank& self, const ChildSide& parent) {
    parent.say("there");
    char go = 0;
    parent.receive(&go, 1);
    must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
    return 0;
  });
  for (int rank = 0; rank < 3; ++rank) ranks[rank].expectLine("there", in(kPatience));
  ranks[1].kill(SIGSTOP);
  const auto start = std::chrono::steady_clock::now();
  const test::Outcome all = tuttiRas("");
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_THAT(all.output, HasSubstr("process " + std::to_string(ranks[1].pid()) + " does not answer"));
  EXPECT_THAT(all.output, ContainsRegex("PROBLEM: rank 1 \\(host [^ ]+, pid " +
                                        std::to_string(ranks[1].pid()) + "\\) does not answer"));
  EXPECT_LT(took, 6s);
  ranks[1].kill(SIGCONT);
  for (int rank = 0; rank < 3; ++rank) ranks[rank].send("x", 1);
  ranks.expectSuccess(kPatience);
}

/// Its peer's memory is asked for at the moment when the peer is dead, but the news of it has not come yet.
TEST(DeathDuringACall, IsTheErrorNotTheConnectionThatWasRefused) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    RankProcesses ranks(2, Path::sharedMemory, [](Rank& self, const ChildSide& parent) {
      float* data = allocate(kMany, parent);
      parent.say("there");
      if (self.rank == 1) {
        must(allReduce(self, data), "ncclAllReduce", parent);
        std::this_thread::sleep_for(20ms);
        parent.say("posted");
        std::this_thread::sleep_for(10s);
        return 1;
      }
      char go = 0;
      parent.receive(&go, 1);
      return sayError(self, parent, allReduce(self, data));
    });
    ranks[0].expectLine("there", in(kPatience));
    ranks[1].expectLine("posted", in(kPatience));
    ranks[0].kill(SIGSTOP);
    ranks[1].kill(SIGKILL);
    ranks[1].wait(in(kPatience));
    ranks[0].send("x", 1);
    ranks[0].kill(SIGCONT);
    EXPECT_THAT(errorOf(ranks, 0), AllOf(HasSubstr("rank 1"), HasSubstr("died"))) << "attempt " << attempt;
    ranks[0].wait(in(kPatience));
  }
}

TEST(RasPort, AnswersNcclrasAndIsNotDisturbedByOthers) {
  const int port = freePort();
  const Settings settings{{"NCCL_RAS_ADDR", "localhost:" + std::to_string(port)}};
  RankProcesses ranks(3, Path::sharedMemory, waitForRankTwo);
  for (int rank = 0; rank < 3; ++rank) ranks[rank].expectLine("there", in(kPatience));
  std::vector<Tcp> disturbers;  // half-open ones stay until the end
  for (int i = 0; i < 40; ++i) disturbers.push_back(Tcp::connect(port));
  disturbers.back().say("STAT");
  const Tcp http = Tcp::connect(port);
  http.say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(http.rest(), testing::StartsWith("ERROR"));
  const Tcp noise = Tcp::connect(port);
  noise.say(std::string(100000, '\xff'));
  EXPECT_EQ(noise.rest(), "");

  const Tcp client = Tcp::connect(port);
  client.say("CLIENT PROTOCOL 2\n");
  EXPECT_EQ(client.line(), "SERVER PROTOCOL 2");
  client.say("TIMEOUT 3\n");
  EXPECT_EQ(client.line(), "OK");
  client.say("VERBOSE STATUS\n");
  EXPECT_THAT(client.rest(),
              AllOf(HasSubstr("3 ranks: RUNNING"), HasSubstr("rank 2"), HasSubstr("State: ok")));
  EXPECT_EQ(tuttiRas("-p " + std::to_string(port)).status, 0);
  ranks[2].send("x", 1);
  ranks.expectSuccess(kPatience);
  EXPECT_EQ(tuttiRas("-p " + std::to_string(port)).status, 1);
  EXPECT_EQ(tuttiRas("-p nowhere").status, 2);
}

TEST(RasPort, ThatIsTakenIsNoFailureAndIsTakenOverWhenItIsFree) {
  Tcp holder = Tcp::listenAnywhere();
  const int port = holder.port();
  const Settings settings{{"NCCL_RAS_ADDR", "localhost:" + std::to_string(port)},
                          {"TUTTI_STALL_WARN", "0.2"},
                          {"NCCL_DEBUG_FILE", "/dev/null"}};
  RankProcesses ranks(3, Path::sharedMemory, [&holder](Rank& self, const ChildSide& parent) {
    holder.close();  // forked with the process
    return waitForRankTwo(self, parent);
  });
  for (int rank = 0; rank < 3; ++rank) ranks[rank].expectLine("there", in(kPatience));
  holder.close();
  test::Outcome ran;
  for (int i = 0; i < 50 && ran.output.find("3 ranks") == std::string::npos; ++i) {
    std::this_thread::sleep_for(50ms);
    ran = tuttiRas("-p " + std::to_string(port));
  }
  EXPECT_THAT(ran.output, HasSubstr("3 ranks"));
  ranks[2].send("x", 1);
  ranks.expectSuccess(kPatience);
}

INSTANTIATE_TEST_SUITE_P(Paths, BothPaths, testing::Values(Path::sharedMemory, Path::sockets),
                         [](const auto& each) { return std::string(nameOf(each.param)); });

}  // namespace
}  // namespace tutti::system_test
