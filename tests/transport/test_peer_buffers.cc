#include <gtest/gtest.h>

#include <cstring>

#include "memory_runtime.h"
#include "support/fork_ranks.h"
#include "support/thread_ranks.h"
#include "support/traffic.h"
#include "transport/memory_service.h"

namespace tutti::test {
namespace {

/// Posts a description of `pointer` and gives those of all local ranks.
std::vector<BufferDescriptor> exchange(Endpoint& endpoint, uint64_t sequence, const void* pointer,
                                       size_t bytes) {
  BoardEntry entry;
  entry.input = endpoint.describe(pointer, bytes);
  endpoint.post(sequence, entry);
  std::vector<BufferDescriptor> all;
  for (const int peer : endpoint.localRanks()) {
    const BoardEntry* seen = nullptr;
    waitUntil(endpoint, [&] { return (seen = endpoint.read(peer, sequence)) != nullptr; });
    all.push_back(seen->input);
  }
  return all;
}

TEST(PeerBuffers, CanBeReadAndWrittenByAnotherProcess) {
  runForkedEndpoints({{0}, {1, 2}}, smallOptions(), oneHost, [](Endpoint& endpoint, OobChannel& oob) {
    const int me = endpoint.rank();
    constexpr size_t kBytes = 100000;
    auto* mine = static_cast<std::byte*>(allocateInFile(kBytes));
    std::memset(mine, 10 + me, kBytes);
    constexpr size_t kOffset = 1234;
    const auto all = exchange(endpoint, 1, mine + kOffset, kBytes - kOffset);
    ASSERT_EQ(all.size(), 3U);
    for (int peer = 0; peer < 3; ++peer) {
      const BufferDescriptor& buffer = all[static_cast<size_t>(peer)];
      EXPECT_NE(buffer.fileId, 0U);
      EXPECT_EQ(buffer.offset, kOffset);
      auto mapped = endpoint.mapPeerBuffer(peer, buffer, soon());
      ASSERT_TRUE(mapped.isOk()) << mapped.status().message();
      EXPECT_EQ(static_cast<int>((*mapped)[kBytes - kOffset - 1]), 10 + peer);
      auto again = endpoint.mapPeerBuffer(peer, buffer, soon());
      EXPECT_EQ(again.value(), mapped.value()) << "mappings are kept";
      (*mapped)[me] = static_cast<std::byte>(100 + me);
    }
    ASSERT_TRUE(oob.barrier(soon()).isOk());
    for (int peer = 0; peer < 3; ++peer)
      EXPECT_EQ(static_cast<int>(mine[kOffset + static_cast<size_t>(peer)]), 100 + peer);
    ASSERT_TRUE(oob.barrier(soon()).isOk());
    freeInFile(mine);
  });
}

TEST(PeerBuffers, OfTheSameProcessAreUsedAtTheirAddress) {
  runThreadRanks(2, smallOptions(), [](Endpoint& endpoint, OobChannel& oob) {
    int value = 5 + endpoint.rank();  // any memory will do
    const auto all = exchange(endpoint, 1, &value, sizeof(value));
    auto mapped =
        endpoint.mapPeerBuffer(1 - endpoint.rank(), all[static_cast<size_t>(1 - endpoint.rank())], soon());
    ASSERT_TRUE(mapped.isOk());
    EXPECT_EQ(*reinterpret_cast<int*>(*mapped), 5 + 1 - endpoint.rank());
    ASSERT_TRUE(oob.barrier(soon()).isOk());
  });
}

TEST(PeerBuffers, OutsideMemoryFilesAreRefusedWithTheOwnersName) {
  runForkedEndpoints({{0}, {1}}, smallOptions(), oneHost, [](Endpoint& endpoint, OobChannel&) {
    int value = 0;
    const auto all = exchange(endpoint, 1, &value, sizeof(value));
    const int peer = 1 - endpoint.rank();
    EXPECT_EQ(all[static_cast<size_t>(peer)].fileId, 0U);
    auto mapped = endpoint.mapPeerBuffer(peer, all[static_cast<size_t>(peer)], soon());
    ASSERT_FALSE(mapped.isOk());
    EXPECT_NE(mapped.status().message().find("rank " + std::to_string(peer)), std::string::npos);
  });
}

TEST(PeerBuffers, FreedOrForgedOnesAreRefused) {
  runForkedEndpoints({{0}, {1}}, smallOptions(), oneHost, [](Endpoint& endpoint, OobChannel& oob) {
    const int peer = 1 - endpoint.rank();
    void* mine = allocateInFile(4096);
    const auto all = exchange(endpoint, 1, mine, 4096);
    const BufferDescriptor good = all[static_cast<size_t>(peer)];
    BufferDescriptor forged = good;
    forged.offset = good.fileBytes + 1;
    EXPECT_FALSE(endpoint.mapPeerBuffer(peer, forged, soon()).isOk()) << "offset beyond the file";
    forged = good;
    forged.fileBytes = 1 << 20;
    EXPECT_FALSE(endpoint.mapPeerBuffer(peer, forged, soon()).isOk()) << "longer than the real file";
    forged = good;
    forged.fileId += 1000;
    EXPECT_FALSE(endpoint.mapPeerBuffer(peer, forged, soon()).isOk()) << "a file that was never described";
    ASSERT_TRUE(oob.barrier(soon()).isOk());
    freeInFile(mine);
    ASSERT_TRUE(oob.barrier(soon()).isOk());
    auto mapped = endpoint.mapPeerBuffer(peer, good, soon());
    ASSERT_FALSE(mapped.isOk()) << "freed by its owner";
    EXPECT_NE(mapped.status().message().find("rank " + std::to_string(peer)), std::string::npos);
    ASSERT_TRUE(oob.barrier(soon()).isOk());
  });
}

TEST(MemoryService, GivesNothingToThoseWithoutTheSecret) {
  const Secret secret = *Secret::random();
  auto service = MemoryService::start(secret);
  ASSERT_TRUE(service.isOk()) << service.status().message();
  void* mine = allocateInFile(4096);
  const BufferDescriptor buffer = (*service)->describe(mine);
  const PeerInfo owner{0, "host-a", "host-a", 1, 1, 0};
  const auto address = (*service)->address();
  auto good = fetchMemoryFile(owner, address, secret, buffer.fileId, 4096, soon(), nullptr);
  EXPECT_TRUE(good.isOk()) << good.status().message();
  auto bad = fetchMemoryFile(owner, address, *Secret::random(), buffer.fileId, 4096, soon(), nullptr);
  EXPECT_FALSE(bad.isOk());
  freeInFile(mine);
}

}  // namespace
}  // namespace tutti::test
