// Messages of groups, run by kernels on virtual GPUs.
#include <gtest/gtest.h>

#include <deque>

#include "device_team.h"

namespace tutti {
namespace {

using test::DeviceTeam;
using test::kProtocols;

/// Messages with their buffers; each has bytes of its own.
class Mail {
 public:
  explicit Mail(DeviceTeam& team) : team_(team), groups_(static_cast<size_t>(team.ranks())) {}

  void add(int from, int to, size_t bytes, int channels = 1, Protocol protocol = Protocol::simple) {
    Letter letter{from, to, std::vector<std::byte>(bytes), std::vector<std::byte>(bytes + 1)};
    for (size_t i = 0; i < bytes; ++i)
      letter.sent[i] = static_cast<std::byte>(i * 7 + letters_.size() * 13 + i / 251);
    letters_.push_back(std::move(letter));
    Letter& kept = letters_.back();  // of a deque: it stays where it is
    CudaCall call = team_.message(from, from, to, kept.sent.data(), bytes, channels, protocol);
    if (from == to) {
      call.output = kept.received.data();
      groups_[static_cast<size_t>(from)].push_back(call);
      return;
    }
    groups_[static_cast<size_t>(from)].push_back(call);
    groups_[static_cast<size_t>(to)].push_back(
        team_.message(to, from, to, kept.received.data(), bytes, channels, protocol));
  }

  /// One launch a rank.
  void enqueue(int stream = 0) {
    for (int r = 0; r < team_.ranks(); ++r) {
      auto& group = groups_[static_cast<size_t>(r)];
      auto facts = team_.executor(r).enqueueMessages(group, team_.stream(r, stream));
      EXPECT_TRUE(facts.isOk()) << facts.status().message();
      if (facts.isOk()) mostBlocks_ = std::max(mostBlocks_, facts->blocks);
      group.clear();
    }
  }
  uint32_t mostBlocks() const { return mostBlocks_; }
  std::vector<CudaCall>& group(int rank) { return groups_[static_cast<size_t>(rank)]; }

  void expectArrived() const {
    for (size_t n = 0; n < letters_.size(); ++n) {
      const Letter& letter = letters_[n];
      std::vector<std::byte> wanted = letter.sent;
      wanted.push_back({});  // nothing behind the end
      ASSERT_EQ(letter.received, wanted) << "message " << n << " of " << letter.sent.size() << " bytes from "
                                         << letter.from << " to " << letter.to;
    }
  }

 private:
  struct Letter {
    int from;
    int to;
    std::vector<std::byte> sent;
    std::vector<std::byte> received;
  };
  DeviceTeam& team_;
  std::deque<Letter> letters_;
  std::vector<std::vector<CudaCall>> groups_;
  uint32_t mostBlocks_ = 0;
};

TEST(DeviceMessages, EveryRankSendsToEveryRankInAllProtocols) {
  DeviceTeam team({.ranks = 4});
  Mail mail(team);
  size_t bytes = 0;
  for (const Protocol protocol : kProtocols) {
    for (int from = 0; from < 4; ++from)
      for (int to = 0; to < 4; ++to) mail.add(from, to, bytes = (bytes * 5 + 1) % 7919, 1, protocol);
    mail.enqueue();
  }
  EXPECT_EQ(mail.mostBlocks(), 7u);  // three ways out, three ways in, one copy
  team.synchronize();
  mail.expectArrived();
}

TEST(DeviceMessages, TwentyToOnePeerComeInTheirOrder) {
  DeviceTeam team({.ranks = 2});
  Mail mail(team);
  for (size_t n = 0; n < 20; ++n) mail.add(0, 1, n * 97);
  mail.add(1, 0, 5000);
  mail.enqueue();
  team.synchronize();
  mail.expectArrived();
}

TEST(DeviceMessages, GroupsNeedNotBeTheSameOnBothEnds) {
  DeviceTeam team({.ranks = 2});
  Mail mail(team);
  for (size_t n = 0; n < 6; ++n) mail.add(0, 1, 3000 + n);
  const std::vector<CudaCall> arriving = mail.group(1);
  mail.group(1).clear();
  mail.enqueue();
  for (const CudaCall& call : arriving)
    ASSERT_TRUE(team.executor(1).enqueueMessages({&call, 1}, team.stream(1)).isOk());
  team.synchronize();
  mail.expectArrived();
}

TEST(DeviceMessages, OfOneChainMayHaveDifferentNumbersOfChannels) {
  DeviceTeam team({.ranks = 3});
  Mail mail(team);
  for (int n = 0; n < 12; ++n) {
    mail.add(0, 1, static_cast<size_t>(3001 * n), 1 + n % 3);
    mail.add(1, 2, static_cast<size_t>(999 * n), 3 - n % 3);
    mail.add(2, 2, static_cast<size_t>(77 * n), 1 + n % 2);
  }
  mail.enqueue();
  EXPECT_GE(mail.mostBlocks(), 3u);
  team.synchronize();
  mail.expectArrived();
}

TEST(DeviceMessages, MoreConnectionsThanBlocksShareThem) {
  // 32 blocks of a multiprocessor's 2048 threads; nine ranks on one device have few of them each.
  constexpr int kRanks = 9;
  const size_t bytes = test::scaled<size_t>(2500, 50);
  DeviceTeam team({.ranks = kRanks, .devices = 1, .channels = 8});
  Mail mail(team);
  for (int from = 0; from < kRanks; ++from)
    for (int to = 0; to < kRanks; ++to) mail.add(from, to, bytes, 8);
  for (int r = 0; r < kRanks; ++r) EXPECT_EQ(mail.group(r).size(), 17u);
  mail.enqueue();
  EXPECT_LT(mail.mostBlocks(), 17u * 8);
  team.synchronize();
  mail.expectArrived();
}

TEST(DeviceMessages, AndCollectivesTakeTurns) {
  DeviceTeam team({.ranks = 3});
  Mail mail(team);
  std::vector<test::CallBuffers> calls;
  for (size_t n = 0; n < 8; ++n) {
    for (int from = 0; from < 3; ++from) mail.add(from, (from + 1) % 3, 100 + 700 * n);
    mail.enqueue(static_cast<int>(n % 2));
    test::Call call;
    call.algorithm = n % 2 == 0 ? "ring" : "oneshot";
    call.count = 100 * n;
    call.salt = n;
    calls.emplace_back(3, call);
    team.enqueue(calls.back(), kProtocols[n % 3], static_cast<int>(n / 2 % 2));
  }
  team.synchronize();
  mail.expectArrived();
  for (const auto& call : calls) call.expectRight();
}

}  // namespace
}  // namespace tutti
