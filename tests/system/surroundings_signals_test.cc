// Programs with interval timers, whose calls end early (EINTR), and programs that leave SIGPIPE at its
// default.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "support/scale.h"
#include "system/attack.h"
#include "system/process_probe.h"
#include "system/surroundings.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

std::atomic<int> signalsSeen{0};

/// A thousand signals a second from now on; calls that they interrupt are not restarted.
void startTimer() {
  struct sigaction action {};
  action.sa_handler = [](int) { signalsSeen.fetch_add(1, std::memory_order_relaxed); };
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval every{{0, 1000}, {0, 1000}};
  ::setitimer(ITIMER_REAL, &every, nullptr);
}

void defaultSigpipe(int) { ::signal(SIGPIPE, SIG_DFL); }

class Signals : public testing::TestWithParam<Path> {};

TEST_P(Signals, OfATimerDisturbNoCall) {
  RankProcesses ranks(
      3, GetParam(),
      [](Rank& self, const ChildSide& parent) {
        if (const int wrong = checkCollectives(self, parent, kLargeCount); wrong != 0) return wrong;
        Rank half{self.rank / 2, self.rank == 2 ? 1 : 2, nullptr};
        must(ncclCommSplit(self.comm, self.rank % 2, self.rank, &half.comm, nullptr), "ncclCommSplit", parent,
             self.comm);
        half.ranks = self.rank % 2 == 0 ? 2 : 1;
        if (const int wrong = checkCollectives(half, parent, 1000); wrong != 0) return wrong;
        // One rank is late: the others sleep, are woken, and sleep again.
        if (self.rank == 1) std::this_thread::sleep_for(100ms);
        if (const int wrong = checkCollectives(self, parent, 1000); wrong != 0) return wrong;
        for (const ncclComm_t comm : {half.comm, self.comm}) {
          must(ncclCommFinalize(comm), "ncclCommFinalize", parent, comm);
          must(ncclCommDestroy(comm), "ncclCommDestroy", parent);
        }
        return signalsSeen.load() >= 50 ? 0 : 21;
      },
      [](int rank) {
        startTimer();
        if (rank == 2) std::this_thread::sleep_for(100ms);  // the others wait in init
      });
  ranks.expectSuccess(kRankLimit);
}

/// Rank 1 dies while the others send to it.
void sendToTheDying(Path path) {
  RankProcesses ranks(
      3, path,
      [](Rank& self, const ChildSide& parent) {
        int* data = nullptr;
        constexpr size_t kCount = 2000;  // small: the calling thread, which no signal is blocked in, sends it
        must(cudaMalloc(reinterpret_cast<void**>(&data), kCount * sizeof(int)), "cudaMalloc", parent);
        ncclResult_t state = ncclSuccess;
        for (int call = 0; state == ncclSuccess; ++call) {
          ncclGroupStart();
          for (const int other : {0, 2}) {
            if (self.rank != 1 && other != self.rank) continue;
            state = self.rank == 1 ? ncclRecv(data, kCount, ncclInt32, other, self.comm, nullptr)
                                   : ncclSend(data, kCount, ncclInt32, 1, self.comm, nullptr);
          }
          const ncclResult_t ended = ncclGroupEnd();
          if (state == ncclSuccess) state = ended;
          if (state == ncclSuccess) cudaStreamSynchronize(nullptr);
          if (state == ncclSuccess) ncclCommGetAsyncError(self.comm, &state);
          if (call == 3) parent.say("running");
        }
        must(ncclCommAbort(self.comm), "ncclCommAbort", parent);
        return 0;
      },
      defaultSigpipe);
  for (int rank = 0; rank < 3; ++rank) ranks[rank].expectLine("running", in(kRankLimit));
  // They go on before they can know that it is dead.
  for (const int rank : {0, 2}) ranks[rank].kill(SIGSTOP);
  ranks[1].kill(SIGKILL);
  ranks[1].wait(in(5s));
  for (const int rank : {0, 2}) ranks[rank].kill(SIGCONT);
  for (const int rank : {0, 2}) EXPECT_EQ(ranks[rank].wait(in(kRankLimit)), 0) << "rank " << rank;
}

// Whether a message goes out between the death and the news of it is chance: so, several times.
TEST_P(Signals, OfBrokenConnectionsKillNobodyWhoSends) {
  const Settings quiet{{"NCCL_DEBUG_FILE", "/dev/null"}};
  for (int round = 0; round < 30 && !HasFailure(); ++round) sendToTheDying(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Paths, Signals, testing::Values(Path::sharedMemory, Path::sockets),
                         [](const auto& each) { return std::string(nameOf(each.param)); });

TEST(BrokenConnections, KillNobodyInInit) {
  const Settings quiet{{"NCCL_DEBUG_FILE", "/dev/null"}};
  const Settings tries{{"NCCL_SOCKET_RETRY_CNT", "3"}};  // rank 2 finds nobody
  // Rank 1 of 3 has come to the rendezvous and is killed there; rank 2 comes after that.
  int gate[2];
  ASSERT_EQ(::pipe2(gate, O_CLOEXEC), 0);
  RankProcesses ranks(
      3, Path::sockets, [](Rank&, const ChildSide&) { return 0; },
      [&](int rank) {
        defaultSigpipe(rank);
        char go = 0;
        if (rank == 2 && ::read(gate[0], &go, 1) != 1) _exit(97);
      });
  const auto deadline = in(10s);
  // It has connected when it holds a socket more than its listeners.
  while (establishedConnections(ranks[1].pid()) == 0 && Child::Clock::now() < deadline)
    std::this_thread::sleep_for(2ms);
  std::this_thread::sleep_for(20ms);
  ranks[1].kill(SIGKILL);
  ranks[1].wait(in(5s));
  EXPECT_THAT(ranks[0].expectLine("failed ncclCommInitRank", in(kRankLimit)), HasSubstr("rank 1"));
  EXPECT_EQ(::write(gate[1], "x", 1), 1);
  EXPECT_THAT(ranks[2].expectLine("failed ncclCommInitRank", in(kRankLimit)),
              testing::AnyOf(HasSubstr("rank 1"), HasSubstr("rendezvous")));
  for (const int rank : {0, 2}) EXPECT_EQ(ranks[rank].wait(in(kRankLimit)), 1 << 8) << "rank " << rank;
  ::close(gate[0]);
  ::close(gate[1]);
}

TEST(BrokenConnections, OfRasClientsKillNobody) {
  RankProcesses ranks(
      2, Path::sharedMemory,
      [](Rank& self, const ChildSide& parent) {
        parent.say("there");
        char go = 0;
        parent.receive(&go, 1);
        return checkAndDestroy(self, parent, 1000);
      },
      defaultSigpipe);
  for (int rank = 0; rank < 2; ++rank) ranks[rank].expectLine("there", in(kRankLimit));
  int asked = 0;
  for (int rank = 0; rank < 2; ++rank)
    for (const Listener& listener : listenersOf(ranks[rank].pid())) {
      if (listener.name.find("tutti-ras") == std::string::npos) continue;
      for (int i = 0; i < 10; ++i) {
        Connection client(listener);
        asked += client.say("CLIENT PROTOCOL 2\nVERBOSE STATUS\n") ? 1 : 0;
      }  // gone before the answer
    }
  EXPECT_EQ(asked, 20);
  for (int rank = 0; rank < 2; ++rank) ranks[rank].send("x", 1);
  ranks.expectSuccess(kRankLimit);
}

}  // namespace
}  // namespace tutti::system_test
