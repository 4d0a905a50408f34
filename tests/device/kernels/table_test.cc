// What drivers ask for.
#include "device/kernel_table.h"

#include <gtest/gtest.h>

#include <set>

#include "base/kernel_shim/abi.h"

namespace tutti::device {

TEST(KernelTable, HasAKernelForEveryTypeAndProtocol) {
  std::set<std::string> names;
  std::set<const void*> functions;
  for (int type = 0; type < ncclNumTypes; ++type) {
    for (const Protocol protocol : {Protocol::simple, Protocol::ll, Protocol::ll128}) {
      const shim::KernelTwin* twin = kernelTwin(static_cast<ncclDataType_t>(type), protocol);
      ASSERT_NE(twin, nullptr) << type;
      ASSERT_EQ(twin->argumentCount, 1u);
      EXPECT_EQ(twin->argumentBytes[0], sizeof(LaunchArguments));
      EXPECT_EQ(twin->maxThreads, kMostThreads);
      functions.insert(twin->function);
      names.insert(kernelName(static_cast<ncclDataType_t>(type), protocol));
    }
  }
  EXPECT_EQ(functions.size(), 3u * ncclNumTypes);
  EXPECT_EQ(names.size(), 3u * ncclNumTypes);
  EXPECT_EQ(names.count("tuttiInterpretBfloat16LL128"), 1u);
}

TEST(KernelTable, HasNoneForANumberThatIsNoType) {
  EXPECT_EQ(kernelTwin(static_cast<ncclDataType_t>(ncclNumTypes), Protocol::simple), nullptr);
  EXPECT_EQ(kernelName(static_cast<ncclDataType_t>(ncclNumTypes), Protocol::simple), "");
}

}  // namespace tutti::device
