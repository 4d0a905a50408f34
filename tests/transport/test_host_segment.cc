#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "transport/host_segment.h"

namespace tutti {
namespace {

struct Extent {
  size_t begin;
  size_t end;
};

TEST(HostSegmentLayout, GivesEveryPartItsOwnAlignedPlace) {
  const HostSegmentShape shape{3, 2, 64 * 5, 1000};
  auto layout = HostSegmentLayout::make(shape);
  ASSERT_TRUE(layout.isOk());
  std::vector<Extent> extents{{0, 64}};  // header
  for (int r = 0; r < shape.ranks; ++r) {
    extents.push_back({layout->bell(r), layout->bell(r) + sizeof(Doorbell)});
    for (uint64_t parity : {0, 1})
      extents.push_back({layout->board(r, parity), layout->board(r, parity) + sizeof(BoardCell)});
    for (int c = 0; c < shape.channels; ++c) {
      extents.push_back({layout->scratch(r, c), layout->scratch(r, c) + 2 * shape.scratchBytes});
      for (int other = 0; other < shape.ranks; ++other) {
        for (int f = 0; f < kEndpointFlags; ++f)
          extents.push_back({layout->flag(r, other, c, f), layout->flag(r, other, c, f) + 64});
        for (int p = 0; p < kEndpointPorts; ++p) {
          extents.push_back(
              {layout->control(r, other, c, p), layout->control(r, other, c, p) + sizeof(FifoControl)});
          extents.push_back(
              {layout->slots(r, other, c, p), layout->slots(r, other, c, p) + kFifoSlots * shape.slotBytes});
        }
      }
    }
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (size_t i = 0; i < extents.size(); ++i) {
    EXPECT_EQ(extents[i].begin % 64, 0U);
    if (i > 0) {
      EXPECT_GE(extents[i].begin, extents[i - 1].end) << "parts overlap";
    }
  }
  EXPECT_LE(extents.back().end, layout->bytes());
}

TEST(HostSegmentLayout, RefusesWhatCannotBe) {
  EXPECT_FALSE(HostSegmentLayout::make({0, 1, 64, 0}).isOk());
  EXPECT_FALSE(HostSegmentLayout::make({1, 0, 64, 0}).isOk());
  EXPECT_FALSE(HostSegmentLayout::make({1, 1, 0, 0}).isOk());
  EXPECT_FALSE(HostSegmentLayout::make({1, 1, 100, 0}).isOk());
  EXPECT_FALSE(HostSegmentLayout::make({1000, 32, size_t{1} << 31, 0}).isOk()) << "beyond the address space";
  EXPECT_FALSE(HostSegmentLayout::make({1, 1, 64, SIZE_MAX}).isOk());
}

TEST(HostSegment, CostsMemoryOnlyWhereItIsTouched) {
  auto layout = HostSegmentLayout::make({64, 4, 512 << 10, 1 << 20});
  ASSERT_TRUE(layout.isOk());
  EXPECT_GT(layout->bytes(), size_t{100} << 30);
  auto file = MemoryFile::create("test", layout->bytes());
  ASSERT_TRUE(file.isOk()) << file.status().message();
  auto segment = HostSegment::inFile(*layout, std::move(*file));
  ASSERT_TRUE(segment.isOk());
  (*segment)->slots(63, 62, 3, 7)[0] = std::byte{1};
  EXPECT_TRUE(HostSegment::anonymous(*layout).isOk());
}

TEST(ShareInProcess, GivesAllRanksTheSameSegmentWhileOneHoldsIt) {
  auto layout = HostSegmentLayout::make({1, 1, 64, 0});
  int made = 0;
  const auto make = [&] {
    ++made;
    return HostSegment::anonymous(*layout);
  };
  auto first = shareInProcess(77, make);
  auto second = shareInProcess(77, make);
  auto other = shareInProcess(78, make);
  EXPECT_EQ(first->get(), second->get());
  EXPECT_NE(first->get(), other->get());
  EXPECT_EQ(made, 2);
  const auto failing = [] { return Result<std::shared_ptr<HostSegment>>(internalError("no")); };
  EXPECT_FALSE(shareInProcess(79, failing).isOk());
  EXPECT_TRUE(shareInProcess(79, make).isOk()) << "a failure is not kept";
}

}  // namespace
}  // namespace tutti
