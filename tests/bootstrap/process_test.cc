// Ranks as processes: they die, are interrupted, fork, and come in crowds.
#include <gmock/gmock.h>
#include <sys/time.h>

#include <csignal>

#include "bootstrap/ranks.h"

namespace tutti::testing {
namespace {

using ::testing::HasSubstr;

/// Forks from a process without threads where it can: roots of earlier tests have ended then.
class Processes : public ::testing::Test {
 protected:
  void SetUp() override { waitForQuiet(3000ms); }
};

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  void put(const ncclUniqueId& id, int times) const {
    for (int i = 0; i < times; ++i)
      EXPECT_EQ(::write(ends[1], &id, sizeof id), static_cast<ssize_t>(sizeof id));
  }
  ncclUniqueId take() const {
    ncclUniqueId id{};
    while (::read(ends[0], &id, sizeof id) < 0 && errno == EINTR) continue;
    return id;
  }
  int ends[2];
};

/// `nranks` processes that join one communicator. Each gets its joined rank.
std::vector<pid_t> startRanks(int nranks, const std::function<int(Rank&)>& body) {
  const Pipe ids;
  std::vector<pid_t> pids;
  for (int i = 0; i < nranks; ++i)
    pids.push_back(inProcess([&, i] {
      if (i == 0) ids.put(newId(), nranks);
      auto rank = makeRank(ids.take(), i, nranks);
      join(*rank);
      if (!rank->control) {
        std::fprintf(stderr, "rank %d: %s\n", i, rank->status.message().c_str());
        return 100;
      }
      return body(*rank);
    }));
  ::close(ids.ends[0]);
  ::close(ids.ends[1]);
  return pids;
}

TEST_F(Processes, MeetAndTalk) {
  for (const pid_t pid : startRanks(5, [](Rank& rank) {
         auto all = rank.control->allGather(std::to_string(::getpid()), within(10s));
         if (!all.isOk() || (*all)[static_cast<size_t>(rank.control->rank())] != std::to_string(::getpid()))
           return 1;
         const int me = rank.control->rank();
         if (!rank.control->send((me + 1) % 5, 3, "hello", within(10s)).isOk()) return 2;
         auto got = rank.control->receive((me + 4) % 5, 3, within(10s));
         if (!got.isOk() || *got != "hello") return 3;
         rank.control.reset();
         return rank.faults().stopped() ? 4 : 0;
       }))
    EXPECT_EQ(exitCode(pid), 0);
}

/// All ranks but `victim` wait; the victim kills itself; everyone else must name it soon.
void killRank(int victim, int nranks) {
  const auto pids = startRanks(nranks, [victim](Rank& rank) {
    if (!rank.control->barrier(within(10s)).isOk()) return 1;
    if (rank.control->rank() == victim) ::kill(::getpid(), SIGKILL);
    const auto start = std::chrono::steady_clock::now();
    const auto got = rank.control->allGather("", within(20s));
    if (std::chrono::steady_clock::now() - start > 2s) return 2;
    if (got.status().code() != ncclRemoteError) return 3;
    const std::string& text = got.status().message();
    if (text.find(fmt::format("rank {} (host ", victim)) == std::string::npos) return 4;
    // "connection closed", or "Connection reset by peer" where the victim had not read everything.
    if (text.find("died: ") == std::string::npos) return 5;
    if (!eventually([&] { return rank.faultCalls == 1; })) return 6;
    const auto leaving = std::chrono::steady_clock::now();
    rank.control.reset();
    return std::chrono::steady_clock::now() - leaving < 2s ? 0 : 7;
  });
  for (int i = 0; i < nranks; ++i)
    EXPECT_EQ(exitCode(pids[static_cast<size_t>(i)]), i == victim ? 1000 + SIGKILL : 0) << i;
}

TEST_F(Processes, AKilledRankIsNamedByAllOthers) { killRank(2, 5); }
TEST_F(Processes, AKilledRankZeroIsNamedByAllOthers) { killRank(0, 5); }

TEST_F(Processes, ARankKilledDuringTheRendezvousEndsIt) {
  const Pipe ids;
  const ncclUniqueId id = [&] {
    // Made by a process of its own: this one must stay without threads, since it forks.
    const pid_t maker = inProcess([&] {
      ids.put(newId(), 1);
      std::this_thread::sleep_for(3s);
      return 0;
    });
    EXPECT_GT(maker, 0);
    return ids.take();
  }();
  const pid_t victim = inProcess([&] {
    auto rank = makeRank(id, 1, 3);
    join(*rank);
    return 0;
  });
  const pid_t other = inProcess([&] {
    auto rank = makeRank(id, 0, 3);
    join(*rank);
    return rank->status.message().find("rank 1 (host ") != std::string::npos ? 0 : 1;
  });
  std::this_thread::sleep_for(300ms);
  ::kill(victim, SIGKILL);
  EXPECT_EQ(exitCode(victim), 1000 + SIGKILL);
  EXPECT_EQ(exitCode(other), 0);
}

TEST_F(Processes, WhoseProcessServesAFailedRendezvousStaysUntilTheOthersHaveHeardWhy) {
  const Pipe ids;
  std::vector<pid_t> pids;
  for (int i = 0; i < 3; ++i)
    pids.push_back(inProcess([&, i] {
      if (i == 0) ids.put(newId(), 3);
      auto rank = makeRank(ids.take(), i, i == 1 ? 4 : 3);
      // The others have failed by then, and their programs end.
      if (i == 2) std::this_thread::sleep_for(300ms);
      join(*rank);
      return rank->status.message().find("says") != std::string::npos ? 0 : 1;
    }));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(exitCode(pids[static_cast<size_t>(i)]), 0) << "rank " << i;
}

TEST_F(Processes, ALauncherThatIsNoRankServesTheRendezvous) {
  const Pipe ids;
  const pid_t launcher = inProcess([&] {
    const size_t before = runningThreads();
    ids.put(newId(), 3);
    return eventually([&] { return ioService().registered() == 0 && runningThreads() == before; }, 8s) ? 0
                                                                                                       : 1;
  });
  std::vector<pid_t> pids;
  for (int i = 0; i < 3; ++i)
    pids.push_back(inProcess([&, i] {
      auto rank = makeRank(ids.take(), i, 3);
      join(*rank);
      return rank->control && rank->control->barrier(within(5s)).isOk() ? 0 : 1;
    }));
  for (const pid_t pid : pids) EXPECT_EQ(exitCode(pid), 0);
  EXPECT_EQ(exitCode(launcher), 0) << "the launcher's service thread did not end";
}

TEST_F(Processes, WorkUnderAStormOfSignals) {
  for (const pid_t pid : startRanks(4, [](Rank& rank) {
         struct sigaction action {};
         action.sa_handler = [](int) {};
         ::sigaction(SIGALRM, &action, nullptr);  // no SA_RESTART: every system call may fail with EINTR
         const itimerval storm{{0, 1000}, {0, 1000}};
         ::setitimer(ITIMER_REAL, &storm, nullptr);
         auto second = makeRank(rank.request.id, 0, 1);
         for (int i = 0; i < 200; ++i) {
           const int me = rank.control->rank();
           if (!rank.control->barrier(within(10s)).isOk()) return 1;
           if (!rank.control->send((me + 1) % 4, 1, std::string(100000, 'x'), within(10s)).isOk()) return 2;
           auto got = rank.control->receive((me + 3) % 4, 1, within(10s));
           if (!got.isOk() || got->size() != 100000) return 3;
         }
         for (int i = 0; i < 10; ++i) {
           second = makeRank(newId(), 0, 1);
           join(*second);
           if (!second->control) return 4;
         }
         return rank.faults().stopped() ? 5 : 0;
       }))
    EXPECT_EQ(exitCode(pid), 0);
}

TEST_F(Processes, AForkedChildDoesNotHideTheDeathOfItsParent) {
  const Pipe childPid;
  const auto pids = startRanks(3, [&](Rank& rank) {
    if (!rank.control->barrier(within(10s)).isOk()) return 1;
    if (rank.control->rank() == 1) {
      const pid_t child = inProcess([] {
        std::this_thread::sleep_for(4s);
        return 0;
      });
      (void)child;
      ::kill(::getpid(), SIGKILL);
    }
    const auto got = rank.control->allGather("", within(2s));
    return got.status().message().find("rank 1 (host ") != std::string::npos &&
                   got.status().message().find("died") != std::string::npos
               ? 0
               : 2;
  });
  EXPECT_EQ(exitCode(pids[0]), 0);
  EXPECT_EQ(exitCode(pids[1]), 1000 + SIGKILL);
  EXPECT_EQ(exitCode(pids[2]), 0);
}

TEST_F(Processes, AForkedChildMayMakeCommunicatorsOfItsOwn) {
  // tsan cannot follow threads that are started after a fork from a process with threads.
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP();
#endif
  const pid_t pid = inProcess([] {
    auto mine = makeRank(newId(), 0, 1);
    join(*mine);
    if (!mine->control) return 1;
    const pid_t child = inProcess([&] {
      auto own = makeRank(newId(), 0, 1);
      join(*own);
      mine->control.reset();  // the copy of the parent's: must not disturb it
      return own->control && own->control->barrier(within(5s)).isOk() ? 0 : 2;
    });
    if (exitCode(child) != 0) return 3;
    return mine->control->barrier(within(5s)).isOk() && !mine->faults().stopped() ? 0 : 4;
  });
  EXPECT_EQ(exitCode(pid), 0);
}

TEST_F(Processes, TwoHundredRanksInitialiseQuickly) {
  constexpr int kProcesses = 4, kRanks = 200;
  const Pipe ids;
  const auto start = std::chrono::steady_clock::now();
  std::vector<pid_t> pids;
  for (int p = 0; p < kProcesses; ++p)
    pids.push_back(inProcess([&, p] {
      if (p == 0) ids.put(newId(), kProcesses);
      const ncclUniqueId id = ids.take();
      std::vector<std::unique_ptr<Rank>> ranks;
      for (int i = p; i < kRanks; i += kProcesses) ranks.push_back(makeRank(id, i, kRanks));
      std::atomic<int> failed{0};
      onThreads(ranks, [&](Rank& rank) {
        join(rank);
        if (!rank.control) {
          std::fprintf(stderr, "rank %d: %s\n", rank.request.rank, rank.status.message().c_str());
          ++failed;
        }
      });
      if (failed == 0) onThreads(ranks, [](Rank& rank) { rank.control->leave(within(5s)); });
      return failed.load() == 0 ? 0 : 1;
    }));
  for (const pid_t pid : pids) EXPECT_EQ(exitCode(pid), 0);
  // About one second on two cores; other tests run beside it.
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
}

}  // namespace
}  // namespace tutti::testing
