// Runs ranks in forked processes, one or more threads (ranks) a process, with an out-of-band channel over
// socket pairs made before the forks.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fault_state.h"
#include "base/identity.h"
#include "base/oob.h"

#include "transport/endpoint.h"

namespace tutti::test {

/// Full mesh: ends[a][b] is a's end of the pair with b.
using OobMesh = std::vector<std::vector<int>>;

inline OobMesh makeMesh(int ranks) {
  OobMesh mesh(static_cast<size_t>(ranks), std::vector<int>(static_cast<size_t>(ranks), -1));
  for (size_t a = 0; a < mesh.size(); ++a)
    for (size_t b = a; b < mesh.size(); ++b) {
      int pair[2];
      if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) std::abort();
      mesh[a][b] = pair[0];
      mesh[b][a] = pair[1];
      if (a == b) ::close(pair[1]);
    }
  return mesh;
}

class MeshOob final : public OobChannel {
 public:
  MeshOob(std::vector<int> ends, int rank) : ends_(std::move(ends)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ends_.size()); }
  Result<std::vector<std::string>> allGather(std::string_view mine, Deadline deadline) override {
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank_) TUTTI_TRY(send(peer, kCollective, mine, deadline));
    std::vector<std::string> all(ends_.size());
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank_) {
        all[static_cast<size_t>(peer)] = mine;
        continue;
      }
      TUTTI_ASSIGN(all[static_cast<size_t>(peer)], receive(peer, kCollective, deadline));
    }
    return all;
  }
  Status barrier(Deadline deadline) override { return allGather({}, deadline).status(); }
  Status send(int peer, uint64_t tag, std::string_view bytes, Deadline) override {
    std::string message(reinterpret_cast<const char*>(&tag), sizeof(tag));
    message += bytes;
    if (::send(ends_[static_cast<size_t>(peer)], message.data(), message.size(), MSG_NOSIGNAL) < 0)
      return remoteError("rank {} is gone", peer);
    return Status::ok();
  }
  Result<std::string> receive(int peer, uint64_t tag, Deadline deadline) override {
    auto& early = early_[{peer, tag}];
    while (early.empty()) {
      pollfd watched{ends_[static_cast<size_t>(peer)], POLLIN, 0};
      if (::poll(&watched, 1, deadline.pollTimeoutMs(60000)) <= 0)
        return remoteError("rank {} sent nothing in time", peer);
      char buffer[8192];
      const ssize_t got = ::recv(watched.fd, buffer, sizeof(buffer), 0);
      if (got < static_cast<ssize_t>(sizeof(uint64_t))) return remoteError("rank {} is gone", peer);
      uint64_t gotTag = 0;
      std::memcpy(&gotTag, buffer, sizeof(gotTag));
      early_[{peer, gotTag}].emplace_back(buffer + sizeof(gotTag), static_cast<size_t>(got) - sizeof(gotTag));
    }
    std::string bytes = std::move(early.front());
    early.erase(early.begin());
    return bytes;
  }

 private:
  static constexpr uint64_t kCollective = ~uint64_t{0};
  std::vector<int> ends_;
  int rank_;
  std::map<std::pair<int, uint64_t>, std::vector<std::string>> early_;
};

/// What a rank of a forked process gets.
struct ForkedRank {
  int rank = 0;
  std::vector<PeerInfo> peers;
  MeshOob& oob;
};

/// Failures so far in the running test: a forked child counts from what it inherited.
inline int testResults() {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  return info == nullptr ? 0 : info->result()->total_part_count();
}

/// Runs `body` for every rank; `processes[p]` are the ranks of process p. `hostOf(rank)` names the rank's
/// host. Returns how each process ended (waitpid's status); failed expectations give exit code 1.
inline std::vector<int> runForked(const std::vector<std::vector<int>>& processes,
                                  const std::function<std::string(int)>& hostOf,
                                  const std::function<void(ForkedRank&)>& body) {
  int ranks = 0;
  for (const auto& process : processes) ranks += static_cast<int>(process.size());
  const OobMesh mesh = makeMesh(ranks);
  const int resultsBefore = testResults();
  std::vector<pid_t> children;
  std::fflush(nullptr);
  for (const auto& process : processes) {
    const pid_t pid = ::fork();
    if (pid != 0) {
      children.push_back(pid);
      continue;
    }
    for (size_t a = 0; a < mesh.size(); ++a)  // so that the death of a peer closes its ends
      if (std::find(process.begin(), process.end(), static_cast<int>(a)) == process.end())
        for (const int fd : mesh[a]) ::close(fd);
    std::vector<std::thread> threads;
    for (const int rank : process) {
      threads.emplace_back([&, rank] {
        MeshOob oob(mesh[static_cast<size_t>(rank)], rank);
        const uint64_t token = *processToken();
        std::string mine(reinterpret_cast<const char*>(&token), sizeof(token));
        auto tokens = oob.allGather(mine, Deadline::after(std::chrono::seconds(20)));
        ASSERT_TRUE(tokens.isOk()) << tokens.status().message();
        ForkedRank self{rank, {}, oob};
        for (int r = 0; r < ranks; ++r) {
          PeerInfo info{r, hostOf(r), hostOf(r), ::getpid(), 0, r};
          std::memcpy(&info.processToken, (*tokens)[static_cast<size_t>(r)].data(),
                      sizeof(info.processToken));
          self.peers.push_back(info);
        }
        body(self);
      });
    }
    for (auto& thread : threads) thread.join();
    std::fflush(nullptr);
    ::_exit(testResults() > resultsBefore ? 1 : 0);
  }
  for (const auto& row : mesh)
    for (const int fd : row) ::close(fd);
  std::vector<int> statuses;
  for (const pid_t pid : children) {
    int status = -1;
    if (::waitpid(pid, &status, 0) != pid) status = -1;
    statuses.push_back(status);
  }
  return statuses;
}

/// The usual case: an endpoint for every rank, everything has to succeed.
inline void runForkedEndpoints(const std::vector<std::vector<int>>& processes, const EndpointOptions& options,
                               const std::function<std::string(int)>& hostOf,
                               const std::function<void(Endpoint&, OobChannel&)>& body) {
  const auto statuses = runForked(processes, hostOf, [&](ForkedRank& self) {
    auto faults = std::make_shared<FaultState>();
    auto endpoint = Endpoint::create(self.peers, self.rank, options, self.oob, faults,
                                     Deadline::after(std::chrono::seconds(20)));
    ASSERT_TRUE(endpoint.isOk()) << endpoint.status().message();
    body(**endpoint, self.oob);
    EXPECT_TRUE(faults->error().isOk()) << "rank " << self.rank << ": " << faults->error().message();
    ASSERT_TRUE(self.oob.barrier(Deadline::after(std::chrono::seconds(20))).isOk());
  });
  for (size_t p = 0; p < statuses.size(); ++p) EXPECT_EQ(statuses[p], 0) << "process " << p;
}

inline std::string oneHost(int) { return "host-a"; }

}  // namespace tutti::test
