#include "core/progress.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace tutti {
namespace {

Operation operation(size_t count) {
  Operation one;
  one.count = count;
  one.root = static_cast<int>(count % 1000);
  one.type = ncclFloat32;
  return one;
}

TEST(Progress, IsReadWholeWhileItIsWritten) {
  Progress progress;
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop.load()) {
      const auto seen = progress.read();
      if (seen.running()) EXPECT_EQ(seen.call.root, static_cast<int>(seen.call.count % 1000));
    }
  });
  for (size_t i = 1; i < 20000; ++i) {
    progress.begin(operation(i * 7919), i, 0);
    progress.moved();
    if (i % 5 == 0) progress.end();
  }
  stop = true;
  reader.join();
  progress.end();
  EXPECT_FALSE(progress.read().running());
  EXPECT_EQ(progress.read().collective, 19999u);
}

TEST(Progress, ForgetsWhatWasWaitedForOnceSomethingMoves) {
  Progress progress;
  progress.begin(operation(1), 1, 0);
  EXPECT_FALSE(progress.wanted());
  progress.want();
  EXPECT_TRUE(progress.wanted());
  progress.publish({{.peer = 3}});
  EXPECT_FALSE(progress.wanted());
  EXPECT_EQ(progress.waits().size(), 1u);
  progress.moved();
  EXPECT_TRUE(progress.waits().empty());
}

TEST(Progress, NumbersCollectivesFromOne) {
  Progress progress;
  EXPECT_EQ(progress.called(2, 5), 1u);
  EXPECT_EQ(progress.called(1, 0), 3u);
  EXPECT_EQ(progress.read().collectivesCalled, 3u);
  EXPECT_EQ(progress.read().messagesCalled, 5u);
}

}  // namespace
}  // namespace tutti
