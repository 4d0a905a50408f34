// ncclSend and ncclRecv.
#include <numeric>

#include "api/ranks.h"

namespace tutti::test {
namespace {

std::vector<int> sequence(size_t count, int first) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(Messages, TravelFromEachRankToEveryOther) {
  for (const int ranks : {2, 3, 5}) {
    runRanks(ranks, [](Rank& rank) {
      for (const size_t count : {size_t{1}, size_t{1000}, size_t{400003}}) {
        const auto n = static_cast<size_t>(rank.ranks);
        std::vector<std::vector<int>> out(n);
        std::vector<std::vector<int>> in(n, std::vector<int>(count, -1));
        for (int p = 0; p < rank.ranks; ++p)
          out[static_cast<size_t>(p)] = sequence(count, rank.rank * 100 + p);
        ASSERT_NCCL_OK(ncclGroupStart());
        for (int p = 0; p < rank.ranks; ++p) {  // includes the rank itself
          ASSERT_NCCL_OK(
              ncclSend(out[static_cast<size_t>(p)].data(), count, ncclInt32, p, rank.comm, rank.stream));
          ASSERT_NCCL_OK(
              ncclRecv(in[static_cast<size_t>(p)].data(), count, ncclInt32, p, rank.comm, rank.stream));
        }
        ASSERT_NCCL_OK(ncclGroupEnd());
        rank.sync();
        for (int p = 0; p < rank.ranks; ++p) {
          ASSERT_EQ(in[static_cast<size_t>(p)], sequence(count, p * 100 + rank.rank)) << "from rank " << p;
        }
      }
    });
  }
}

TEST(Messages, ToOnePeerKeepTheirOrder) {
  runRanks(2, [](Rank& rank) {
    const int peer = 1 - rank.rank;
    const std::vector<size_t> counts = {3, 100000, 0, 1, 77777};
    std::vector<std::vector<int>> in;
    std::vector<std::vector<int>> out;
    for (size_t i = 0; i < counts.size(); ++i) {
      out.push_back(sequence(counts[i], static_cast<int>(i) * 1000 + rank.rank));
      in.emplace_back(counts[i], -1);
    }
    ASSERT_NCCL_OK(ncclGroupStart());
    for (size_t i = 0; i < counts.size(); ++i) {
      ASSERT_NCCL_OK(ncclRecv(in[i].data(), counts[i], ncclInt32, peer, rank.comm, rank.stream));
    }
    for (size_t i = 0; i < counts.size(); ++i) {
      ASSERT_NCCL_OK(ncclSend(out[i].data(), counts[i], ncclInt32, peer, rank.comm, rank.stream));
    }
    ASSERT_NCCL_OK(ncclGroupEnd());
    rank.sync();
    for (size_t i = 0; i < counts.size(); ++i) {
      EXPECT_EQ(in[i], sequence(counts[i], static_cast<int>(i) * 1000 + peer)) << "message " << i;
    }
  });
}

TEST(Messages, AFirstSendReturnsBeforeItsPeerReceives) {
  std::atomic<bool> sent{false};
  runRanks(2, [&](Rank& rank) {
    std::vector<int> data(1000000, rank.rank);
    if (rank.rank == 0) {
      ASSERT_NCCL_OK(ncclSend(data.data(), data.size(), ncclInt32, 1, rank.comm, rank.stream));
      sent = true;  // stands for the message that tells the peer
      sent.notify_all();
    } else {
      sent.wait(false);
      ASSERT_NCCL_OK(ncclRecv(data.data(), data.size(), ncclInt32, 0, rank.comm, rank.stream));
    }
    rank.sync();
    EXPECT_EQ(data.back(), 0);
  });
}

TEST(Messages, OfDifferentLengthsOnTheTwoSidesAreAnErrorThatNamesBoth) {
  runRanks(2, [](Rank& rank) {
    std::vector<int> data(100);
    if (rank.rank == 0) {
      ASSERT_NCCL_OK(ncclSend(data.data(), 100, ncclInt32, 1, rank.comm, rank.stream));
    } else {
      ASSERT_NCCL_OK(ncclRecv(data.data(), 50, ncclInt32, 0, rank.comm, rank.stream));
      rank.sync();
      ncclResult_t error = ncclSuccess;
      ASSERT_NCCL_OK(ncclCommGetAsyncError(rank.comm, &error));
      EXPECT_NE(error, ncclSuccess);
    }
    rank.sync();
  });
}

TEST(Messages, MixWithCollectivesInOneGroup) {
  runRanks(4, [](Rank& rank) {
    std::vector<int> reduced(5000, rank.rank);
    std::vector<int> out = sequence(300, rank.rank);
    std::vector<int> in(300, -1);
    const int next = (rank.rank + 1) % rank.ranks;
    const int previous = (rank.rank + rank.ranks - 1) % rank.ranks;
    ASSERT_NCCL_OK(ncclGroupStart());
    ASSERT_NCCL_OK(ncclSend(out.data(), out.size(), ncclInt32, next, rank.comm, rank.stream));
    ASSERT_NCCL_OK(ncclAllReduce(reduced.data(), reduced.data(), reduced.size(), ncclInt32, ncclSum,
                                 rank.comm, rank.stream));
    ASSERT_NCCL_OK(ncclRecv(in.data(), in.size(), ncclInt32, previous, rank.comm, rank.stream));
    ASSERT_NCCL_OK(ncclGroupEnd());
    rank.sync();
    EXPECT_EQ(in, sequence(300, previous));
    EXPECT_EQ(reduced, std::vector<int>(5000, 6));
  });
}

TEST(Messages, ToOneselfOfDifferentSizesAreRefusedByTheGroupAndNothingRuns) {
  runRanks(2, [](Rank& rank) {
    std::vector<int> out = sequence(8, rank.rank);
    std::vector<int> in(8, -1);
    std::vector<int> reduced(4, 1);
    // The second pair does not fit: 12 bytes, 16 bytes. Neither does anything else of the group run.
    ASSERT_NCCL_OK(ncclGroupStart());
    EXPECT_NCCL_OK(ncclSend(out.data(), 2, ncclInt32, rank.rank, rank.comm, rank.stream));
    EXPECT_NCCL_OK(ncclSend(out.data(), 3, ncclInt32, rank.rank, rank.comm, rank.stream));
    EXPECT_NCCL_OK(ncclRecv(in.data(), 2, ncclInt32, rank.rank, rank.comm, rank.stream));
    EXPECT_NCCL_OK(ncclRecv(in.data() + 4, 2, ncclInt64, rank.rank, rank.comm, rank.stream));
    EXPECT_NCCL_OK(ncclAllReduce(reduced.data(), reduced.data(), reduced.size(), ncclInt32, ncclSum,
                                 rank.comm, rank.stream));
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    const std::string why = ncclGetLastError(rank.comm);
    EXPECT_NE(why.find("sends 12 bytes to itself, but receives 16"), std::string::npos) << why;
    rank.sync();
    EXPECT_EQ(in, std::vector<int>(8, -1));
    EXPECT_EQ(reduced, std::vector<int>(4, 1));
    // The communicator is as good as before, and a message is bytes: types may differ.
    ASSERT_NCCL_OK(ncclGroupStart());
    ASSERT_NCCL_OK(ncclSend(out.data(), 4, ncclInt32, rank.rank, rank.comm, rank.stream));
    ASSERT_NCCL_OK(ncclRecv(in.data(), 2, ncclInt64, rank.rank, rank.comm, rank.stream));
    ASSERT_NCCL_OK(ncclGroupEnd());
    rank.sync();
    EXPECT_TRUE(std::equal(in.begin(), in.begin() + 4, out.begin()));
  });
}

TEST(Messages, ToOneselfWithoutACounterpartAreRefusedAtOnce) {
  runRanks(2, [](Rank& rank) {
    int value = 0;
    EXPECT_EQ(ncclSend(&value, 1, ncclInt32, rank.rank, rank.comm, rank.stream), ncclInvalidUsage);
    ASSERT_NCCL_OK(ncclGroupStart());
    EXPECT_NCCL_OK(ncclRecv(&value, 1, ncclInt32, rank.rank, rank.comm, rank.stream));
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  });
}

}  // namespace
}  // namespace tutti::test
