// How ranks meet, when some of them are missing, doubled or wrong, and when strangers call.
#include "bootstrap/rendezvous.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <fstream>

#include "base/log.h"
#include "bootstrap/ranks.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

UniqueId decoded(const ncclUniqueId& id) {
  auto result = UniqueId::decode(id);
  EXPECT_TRUE(result.isOk()) << result.status().message();
  return *result;
}

TEST(RankList, ReadsLikeASentence) {
  EXPECT_EQ(rankList({3}), "rank 3");
  EXPECT_EQ(rankList({3, 5}), "ranks 3 and 5");
  EXPECT_EQ(rankList({0, 1, 2, 5, 7, 8}), "ranks 0 to 2, 5, 7 and 8");
}

TEST(UniqueId, SurvivesEncoding) {
  UniqueId id;
  id.id = 0x1234567890abcdef;
  id.secret = *Secret::random();
  id.addresses = {*SocketAddress::parse("10.1.2.3:4567"), *SocketAddress::parse("[fd00::7]:89")};
  const UniqueId copy = decoded(id.encode());
  EXPECT_EQ(copy.id, id.id);
  EXPECT_EQ(copy.secret, id.secret);
  EXPECT_EQ(copy.addresses, id.addresses);
}

TEST(UniqueId, LeavesOutAddressesThatDoNotFit) {
  UniqueId id;
  const auto add = [&id](int count, const char* form) {
    for (int i = 0; i < count; ++i)
      id.addresses.push_back(*SocketAddress::parse(fmt::format(fmt::runtime(form), i)));
  };
  add(25, "10.0.0.{}:1");
  EXPECT_EQ(decoded(id.encode()).addresses.size(), 22u);
  id.addresses.clear();
  add(7, "[fd00::{}]:2");
  EXPECT_EQ(decoded(id.encode()).addresses.size(), 5u);
  id.addresses.clear();
  add(2, "[fd00::{}]:2");
  add(2, "10.0.0.{}:1");
  add(9, "[fe80::{}]:2");
  for (int i = 0; i < 3; ++i)  // another port each
    id.addresses.push_back(*SocketAddress::parse(fmt::format("10.0.1.{}:1{}", i, i)));
  UniqueId copy = decoded(id.encode());
  EXPECT_EQ(copy.addresses.size(), 7u)
      << "36 + 12 bytes, 20 and 16 for two more, 8 for one with its own port";
  id.addresses.resize(6);
  copy.addresses.resize(6);
  EXPECT_EQ(copy.addresses, id.addresses);
}

TEST(UniqueId, RefusesForeignAndDamagedBytes) {
  ncclUniqueId zero{};
  EXPECT_THAT(UniqueId::decode(zero).status().message(), HasSubstr("not made by this library"));
  UniqueId id;
  id.addresses = {*SocketAddress::parse("10.1.2.3:4567")};
  const ncclUniqueId good = id.encode();
  for (size_t i = 0; i < sizeof good.internal; ++i) {
    ncclUniqueId bad = good;
    bad.internal[i] = static_cast<char>(bad.internal[i] ^ 1);
    EXPECT_EQ(UniqueId::decode(bad).status().code(), ncclInvalidArgument) << "byte " << i;
  }
}

TEST(UniqueId, EachIsDifferent) {
  const UniqueId a = decoded(newId()), b = decoded(newId());
  EXPECT_NE(a.id, b.id);
  EXPECT_NE(a.secret, b.secret);
  EXPECT_EQ(a.addresses, b.addresses) << "ids of one process share a listener";
}

TEST(Rendezvous, TellsThoseWhoCameWhoIsMissing) {
  const ncclUniqueId id = newId();
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int i : {0, 1, 4, 6, 7}) ranks.push_back(makeRank(id, i, 8));
  onThreads(ranks, [](Rank& rank) { join(rank, 400ms); });
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->status.code(), ncclSystemError);
    EXPECT_THAT(rank->status.message(), HasSubstr("ranks 2, 3 and 5 of 8 did not join"));
  }
}

TEST(Rendezvous, SaysWhoIsMissingSoFarLongBeforeItGivesUp) {
  const std::string path = ::testing::TempDir() + "tutti_reminder_" + std::to_string(::getpid());
  const ScopedEnv level("NCCL_DEBUG", "WARN"), file("NCCL_DEBUG_FILE", path), soon("TUTTI_STALL_WARN", "0.1");
  const ncclUniqueId id = newId();
  std::vector<std::unique_ptr<Rank>> ranks;
  for (const int rank : {0, 2}) ranks.push_back(makeRank(id, rank, 4));
  onThreads(ranks, [](Rank& rank) { join(rank, 700ms); });
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  ::unlink(path.c_str());
  const size_t first = text.str().find("2 of 4 came so far; waiting for ranks 1 and 3");
  EXPECT_NE(first, std::string::npos) << text.str();
  EXPECT_NE(text.str().find("came so far", first + 20), std::string::npos) << "only once: " << text.str();
}

TEST(Rendezvous, NamesBothWhenARankComesTwice) {
  const ncclUniqueId id = newId();
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int i : {0, 1, 1}) ranks.push_back(makeRank(id, i, 4));
  onThreads(ranks, [](Rank& rank) { join(rank); });
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->status.code(), ncclInvalidArgument);
    EXPECT_THAT(rank->status.message(), HasSubstr("rank 1 came twice"));
    EXPECT_THAT(rank->status.message(), HasSubstr(fmt::format("pid {}", ::getpid())));
  }
}

TEST(Rendezvous, NamesBothCountsWhenTheyDiffer) {
  const ncclUniqueId id = newId();
  std::vector<std::unique_ptr<Rank>> ranks;
  ranks.push_back(makeRank(id, 0, 4));
  ranks.push_back(makeRank(id, 1, 5));
  onThreads(ranks, [](Rank& rank) { join(rank); });
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->status.code(), ncclInvalidArgument);
    // Whoever came first is named first.
    EXPECT_THAT(rank->status.message(),
                AnyOf(AllOf(HasSubstr("there are 4 ranks, rank 1 (host"), HasSubstr("says 5")),
                      AllOf(HasSubstr("there are 5 ranks, rank 0 (host"), HasSubstr("says 4"))));
  }
}

TEST(Rendezvous, TellsLatecomersTheSameError) {
  const ncclUniqueId id = newId();
  auto first = makeRank(id, 0, 3), wrong = makeRank(id, 1, 4), late = makeRank(id, 2, 3);
  std::thread other([&] { join(*first); });
  join(*wrong);
  other.join();
  join(*late);
  EXPECT_THAT(first->status.message(), HasSubstr("says that there are"));
  EXPECT_EQ(late->status.message(), first->status.message());
}

TEST(Rendezvous, RefusesRanksOutsideTheRange) {
  for (const auto& [rank, nranks] : {std::pair{-1, 2}, {2, 2}, {0, 0}}) {
    auto r = makeRank(newId(), rank, nranks < 1 ? 1 : nranks);
    r->request.nranks = nranks;
    join(*r);
    EXPECT_EQ(r->status.code(), ncclInvalidArgument);
  }
}

TEST(Rendezvous, EndsWhenARankLeavesDuringIt) {
  const ncclUniqueId id = newId();
  auto stays = makeRank(id, 0, 3), goes = makeRank(id, 1, 3);
  std::thread waiting([&] { join(*stays); });
  std::thread leaving([&] { join(*goes); });
  std::this_thread::sleep_for(100ms);
  const auto start = std::chrono::steady_clock::now();
  goes->request.faults->raise(Status(ncclInternalError, "aborted"));
  leaving.join();
  waiting.join();
  EXPECT_THAT(stays->status.message(),
              AllOf(HasSubstr("rank 1 (host "), HasSubstr("left during initialisation")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
}

TEST(Rendezvous, EndsWhenARankGivesUpBeforeItCame) {
  for (const bool first : {true, false}) {
    const ncclUniqueId id = newId();
    auto stays = makeRank(id, 0, 2), goes = makeRank(id, 1, 2);
    goes->request.faults->raise(Status(ncclInternalError, "aborted early"));
    const auto start = std::chrono::steady_clock::now();
    if (first) join(*goes);
    std::thread waiting([&] { join(*stays); });
    if (!first) {  // as the last one, with whom all would be there
      std::this_thread::sleep_for(100ms);
      join(*goes);
    }
    waiting.join();
    EXPECT_THAT(goes->status.message(), HasSubstr("aborted early"));
    EXPECT_THAT(stays->status.message(), AllOf(HasSubstr("rank 1 (host "), HasSubstr("aborted early")));
    EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
  }
}

TEST(Rendezvous, AndWhatFollowsEndWheneverARankGivesUp) {
  constexpr int kRounds = 60;
  for (int round = 0; round < kRounds; ++round) {
    const ncclUniqueId id = newId();
    std::vector<std::unique_ptr<Rank>> ranks;
    for (int i = 0; i < 3; ++i) ranks.push_back(makeRank(id, i, 3));
    const auto start = std::chrono::steady_clock::now();
    std::thread stop([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(50 * round));
      ranks[2]->request.faults->raise(Status(ncclInternalError, "aborted"));
    });
    onThreads(ranks, [](Rank& rank) { join(rank); });
    stop.join();
    ASSERT_LT(std::chrono::steady_clock::now() - start, 5s) << ranks[0]->status.message();
  }
}

/// A rank that comes to the rendezvous and gets the table, but goes no further.
Result<Meeting> meetOnly(const ncclUniqueId& id, int rank, int nranks, const Kin* leader = nullptr) {
  const UniqueId where = decoded(id);
  JoinHello hello;
  hello.version = fmt::format("{} (NCCL {})", tuttiVersion(), NCCL_VERSION_CODE);
  hello.nranks = nranks;
  hello.limitMs = 20000;
  hello.member = {rank, "ghost", 4242, 42, where.addresses};
  return meet(where, hello, within(10s), nullptr, leader);
}

TEST(Rendezvous, NamesARankThatDiesBetweenItAndItsConnectionToRankZero) {
  const ncclUniqueId id = newId();
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int i = 0; i < 3; ++i) ranks.push_back(makeRank(id, i, 4));
  std::thread ghost([&] {
    auto meeting = meetOnly(id, 3, 4);
    ASSERT_TRUE(meeting.isOk()) << meeting.status().message();
    std::this_thread::sleep_for(50ms);
  });
  const auto start = std::chrono::steady_clock::now();
  onThreads(ranks, [](Rank& rank) { join(rank); });
  ghost.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  for (const auto& rank : ranks)
    EXPECT_THAT(rank->status.message(), HasSubstr("rank 3 (host ghost, pid 4242) died"));
}

TEST(Rendezvous, PassesOnWhyARankGivesUpAfterIt) {
  const ncclUniqueId id = newId();
  auto stays = makeRank(id, 0, 2);
  std::thread ghost([&] {
    auto meeting = meetOnly(id, 1, 2);
    ASSERT_TRUE(meeting.isOk()) << meeting.status().message();
    const Status why = leavingError(meeting->table.members[1], invalidUsage("out of ideas"));
    sendFrame(meeting->root.get(), kErrorFrame, encodeError(why), within(1s), nullptr).ignore();
  });
  join(*stays);
  ghost.join();
  EXPECT_THAT(stays->status.message(), AllOf(HasSubstr("rank 1 (host ghost"), HasSubstr("out of ideas")));
}

/// A parent of three ranks, and the derived id of a child of ranks 1 and 2.
struct Derived {
  std::vector<std::unique_ptr<Rank>> parent = joinedRanks(3);
  std::unique_ptr<Rank> child(int rank) const {
    const Control& control = *parent[static_cast<size_t>(rank + 1)]->control;
    auto made = makeRank(control.deriveId(1, "test"), rank, 2);
    made->request.kin = control.kin({1, 2});
    return made;
  }
};

TEST(DerivedRendezvous, DoesNotWaitForALeaderThatHasLeft) {
  Derived family;
  auto follower = family.child(1);
  std::thread leaving([&] {
    std::this_thread::sleep_for(200ms);
    family.parent[1]->control.reset();
  });
  const auto start = std::chrono::steady_clock::now();
  join(*follower);
  leaving.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  EXPECT_THAT(follower->status.message(),
              AllOf(HasSubstr("rank 0 will not come"), HasSubstr("as rank 1 (host ")));
}

TEST(DerivedRendezvous, DoesNotWaitForAFollowerThatHasLeft) {
  Derived family;
  auto leader = family.child(0);
  family.parent[2]->control.reset();
  const auto start = std::chrono::steady_clock::now();
  join(*leader);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  EXPECT_THAT(leader->status.message(),
              AllOf(HasSubstr("rank 1 will not come"), HasSubstr("as rank 2 (host ")));
}

TEST(DerivedRendezvous, WaitsForThoseWhoAreThere) {
  const Derived families[2];
  std::vector<std::unique_ptr<Rank>> early, late;
  for (const int first : {0, 1}) {
    early.push_back(families[first].child(first));
    late.push_back(families[first].child(1 - first));
  }
  std::thread waiting([&] { onThreads(early, [](Rank& rank) { join(rank); }); });
  std::this_thread::sleep_for(1300ms);  // asked for once
  onThreads(late, [](Rank& rank) { join(rank); });
  waiting.join();
  for (const auto* ranks : {&early, &late})
    for (const auto& rank : *ranks) EXPECT_TRUE(rank->control) << rank->status.message();
}

TEST(Rendezvous, RefusesAnotherSecretAndAStaleId) {
  UniqueId forged = decoded(newId());
  forged.secret = *Secret::random();
  auto rank = makeRank(forged.encode(), 0, 1);
  join(*rank, 2s);
  EXPECT_THAT(rank->status.message(), HasSubstr("does not know this job's secret"));

  ScopedEnv few("NCCL_SOCKET_RETRY_CNT", "1");
  const ncclUniqueId id = newId();
  auto good = makeRank(id, 0, 1);
  join(*good);
  ASSERT_TRUE(good->control) << good->status.message();
  auto again = makeRank(id, 0, 1);
  join(*again, 2s);
  EXPECT_THAT(again->status.message(), HasSubstr("already used"));
}

/// A socket connected to the rendezvous, for strangers.
UniqueFd stranger(const ncclUniqueId& id) {
  auto fd = connectTo(decoded(id).addresses[0], within(5s), nullptr);
  EXPECT_TRUE(fd.isOk()) << fd.status().message();
  return std::move(*fd);
}

bool closedByPeer(const UniqueFd& fd) {
  char byte;
  return receiveAll(fd.get(), &byte, 1, within(3s), nullptr).code() == ncclRemoteError;
}

TEST(Rendezvous, StrangersAreDroppedAndDisturbNobody) {
  const ncclUniqueId id = newId();
  std::vector<UniqueFd> halfOpen, dropped;
  const std::string hello = makeFrame(1, std::string(24, '\0'));
  for (int i = 0; i < 30; ++i) {
    halfOpen.push_back(stranger(id));  // says nothing
    halfOpen.push_back(stranger(id));  // starts, then stops
    ASSERT_TRUE(
        sendAll(halfOpen.back().get(), hello.substr(0, 1 + static_cast<size_t>(i)), within(1s), nullptr)
            .isOk());
    stranger(id);  // closes at once
    dropped.push_back(stranger(id));
    ASSERT_TRUE(
        sendAll(dropped.back().get(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n", within(1s), nullptr).isOk());
    dropped.push_back(stranger(id));
    std::string garbage(100, '\xff');
    ASSERT_TRUE(sendAll(dropped.back().get(), garbage, within(1s), nullptr).isOk());
    dropped.push_back(stranger(id));  // a frame that claims 4 GiB
    FrameHeader huge;
    huge.type = 1;
    huge.length = 0xffffffff;
    ASSERT_TRUE(sendAll(dropped.back().get(), huge.encode(), within(1s), nullptr).isOk());
  }
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int i = 0; i < 4; ++i) ranks.push_back(makeRank(id, i, 4));
  const auto start = std::chrono::steady_clock::now();
  onThreads(ranks, [](Rank& rank) { join(rank); });
  EXPECT_LT(std::chrono::steady_clock::now() - start, 3s);
  for (const auto& rank : ranks) EXPECT_TRUE(rank->control) << rank->status.message();
  for (const UniqueFd& fd : dropped) EXPECT_TRUE(closedByPeer(fd));
}

TEST(Rendezvous, AStrangerIsNamedInOneLogLine) {
  const std::string path = ::testing::TempDir() + fmt::format("tutti_log_{}", ::getpid());
  {
    ScopedEnv level("NCCL_DEBUG", "INFO"), file("NCCL_DEBUG_FILE", path);
    const UniqueFd fd = stranger(newId());
    ASSERT_TRUE(sendAll(fd.get(), "GET /metrics HTTP/1.1\r\n\r\n", within(1s), nullptr).isOk());
    EXPECT_TRUE(closedByPeer(fd));
  }
  std::ifstream in(path);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_THAT(text, HasSubstr("dropped: not a Tutti message: \"GET"));
  size_t lines = 0;
  for (size_t at = text.find("\"GET"); at != std::string::npos; at = text.find("\"GET", at + 1)) ++lines;
  EXPECT_EQ(lines, 1u) << text;
  ::unlink(path.c_str());
}

TEST(CommId, RanksMeetAtTheAddressOfRankZero) {
  const uint16_t port = localAddress(listenOn(SocketAddress::loopback(AF_INET, 0))->get()).port();
  ScopedEnv commId("NCCL_COMM_ID", fmt::format("127.0.0.1:{}", port));
  for (int round = 0; round < 2; ++round) {  // the port can be used again
    std::vector<std::unique_ptr<Rank>> ranks;
    for (int i = 0; i < 3; ++i) ranks.push_back(makeRank(newId(), i, 3));  // each makes its own id
    onThreads(ranks, [](Rank& rank) {
      if (rank.request.rank == 0) std::this_thread::sleep_for(300ms);  // the others have to try again
      join(rank);
    });
    for (const auto& rank : ranks) EXPECT_TRUE(rank->control) << rank->status.message();
  }
}

TEST(CommId, RanksNeedTheSameSecretFile) {
  const std::string path = ::testing::TempDir() + fmt::format("tutti_secret_{}", ::getpid());
  std::ofstream(path) << "0123456789abcdef0123";
  ::chmod(path.c_str(), 0600);
  const uint16_t port = localAddress(listenOn(SocketAddress::loopback(AF_INET, 0))->get()).port();
  ScopedEnv commId("NCCL_COMM_ID", fmt::format("127.0.0.1:{}", port));
  auto zero = makeRank(newId(), 0, 2), one = makeRank(newId(), 1, 2);
  std::thread waiting;
  {
    ScopedEnv file("TUTTI_SECRET_FILE", path);
    waiting = std::thread([&] { join(*zero, 1500ms); });
    std::this_thread::sleep_for(300ms);
  }
  join(*one, 1500ms);
  waiting.join();
  EXPECT_THAT(one->status.message(), HasSubstr("TUTTI_SECRET_FILE"));
  EXPECT_THAT(zero->status.message(), HasSubstr("rank 1 of 2 did not join"));

  ScopedEnv file("TUTTI_SECRET_FILE", path);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int i = 0; i < 2; ++i) ranks.push_back(makeRank(newId(), i, 2));
  onThreads(ranks, [](Rank& rank) { join(rank); });
  for (const auto& rank : ranks) EXPECT_TRUE(rank->control) << rank->status.message();
  ::chmod(path.c_str(), 0644);
  EXPECT_THAT(secretOfCommId().status().message(), HasSubstr("can be read by others"));
  ::chmod(path.c_str(), 0600);
  std::ofstream(path) << "short";
  EXPECT_THAT(secretOfCommId().status().message(), HasSubstr("5 bytes"));
  ::unlink(path.c_str());
  EXPECT_THAT(secretOfCommId().status().message(), HasSubstr("No such file"));
}

TEST(CommId, BadFormsAreNamed) {
  for (const char* text : {"nonsense", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:99999", ":5", "[::1]"}) {
    ScopedEnv commId("NCCL_COMM_ID", text);
    EXPECT_THAT(createUniqueId().status().message(), HasSubstr("NCCL_COMM_ID")) << text;
  }
}

class Interfaces : public ::testing::Test {
 protected:
  void SetUp() override { waitForQuiet(0ms); }
};

TEST_F(Interfaces, IPv6AloneWorks) {
  ScopedEnv family("NCCL_SOCKET_FAMILY", "AF_INET6"), name("NCCL_SOCKET_IFNAME", "lo");
  if (!usableInterfaces(interfaceRulesFromParams(true)).isOk()) GTEST_SKIP() << "no IPv6 here";
  // Ids of earlier tests may keep the process's listener on IPv4: a fresh process has none.
  EXPECT_EQ(exitCode(inProcess([] {
              const ncclUniqueId id = newId();
              if (decoded(id).addresses.at(0).family() != AF_INET6) return 2;
              std::vector<std::unique_ptr<Rank>> ranks;
              for (int i = 0; i < 3; ++i) ranks.push_back(makeRank(id, i, 3));
              onThreads(ranks, [](Rank& rank) { join(rank); });
              for (const auto& rank : ranks)
                if (!rank->control) return 3;
              return 0;
            })),
            0);
}

TEST_F(Interfaces, AnInterfaceThatDoesNotExistIsNamed) {
  ScopedEnv name("NCCL_SOCKET_IFNAME", "=nosuch0");
  EXPECT_EQ(exitCode(inProcess([] {
              const auto id = createUniqueId();
              return !id.isOk() && id.status().message().find("=nosuch0") != std::string::npos &&
                             id.status().message().find("lo 127.0.0.1") != std::string::npos
                         ? 0
                         : 1;
            })),
            0);
}

/// Between a rank and the rendezvous: closes the first connection when the rank's proof comes, as a listener
/// does that takes it for a stranger's; then lets everything through.
class CuttingProxy {
 public:
  explicit CuttingProxy(const SocketAddress& to) : to_(to) {
    listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const SocketAddress any = SocketAddress::loopback(AF_INET, 0);
    EXPECT_EQ(::bind(listener_.get(), any.data(), any.length()), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~CuttingProxy() {
    stop_ = true;
    thread_.join();
  }
  SocketAddress address() const {
    sockaddr_in own{};
    socklen_t length = sizeof own;
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own), &length), 0);
    return SocketAddress::from(reinterpret_cast<sockaddr*>(&own), length);
  }
  int connections() const { return connections_; }

 private:
  void serve() {
    while (!stop_) {
      pollfd entry{listener_.get(), POLLIN, 0};
      if (::poll(&entry, 1, 20) <= 0) continue;
      const UniqueFd rank(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      const UniqueFd root(::socket(to_.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::connect(root.get(), to_.data(), to_.length()) != 0) continue;
      relay(rank.get(), root.get(), ++connections_ == 1);
    }
  }
  void relay(int rank, int root, bool cut) {
    bool challenged = false;
    while (!stop_) {
      pollfd ends[2] = {{rank, POLLIN, 0}, {root, POLLIN, 0}};
      if (::poll(ends, 2, 20) <= 0) continue;
      const bool fromRank = ends[0].revents != 0;
      if (fromRank && challenged && cut) return;
      char bytes[4096];
      const ssize_t got = ::recv(fromRank ? rank : root, bytes, sizeof bytes, 0);
      if (got <= 0) return;
      ::send(fromRank ? root : rank, bytes, static_cast<size_t>(got), MSG_NOSIGNAL);
      challenged |= !fromRank;
    }
  }

  SocketAddress to_;
  UniqueFd listener_;
  std::atomic<bool> stop_{false};
  std::atomic<int> connections_{0};
  std::thread thread_;
};

TEST(Rendezvous, IsTriedAgainByARankWhoseConnectionIsClosedBeforeItIsKnown) {
  const ncclUniqueId id = *createOwnUniqueId();
  CuttingProxy proxy(decoded(id).addresses.front());
  UniqueId detour = decoded(id);
  detour.addresses = {proxy.address()};
  const auto join = [](const ncclUniqueId& by, int rank) {
    JoinRequest request;
    request.id = by;
    request.rank = rank;
    request.nranks = 2;
    request.faults = std::make_shared<FaultState>();
    return Control::join(request, within(20s));
  };
  Status first;
  std::thread zero([&] {
    auto control = join(id, 0);
    first = control.status();
    if (control.isOk()) (*control)->barrier(within(20s)).ignore();
  });
  auto control = join(detour.encode(), 1);
  EXPECT_TRUE(control.isOk()) << control.status().message();
  if (control.isOk()) {
    EXPECT_TRUE((*control)->barrier(within(20s)).isOk());
  }
  zero.join();
  EXPECT_TRUE(first.isOk()) << first.message();
  EXPECT_EQ(proxy.connections(), 2);
}

}  // namespace
}  // namespace tutti::testing
