// The process's two drivers, with the library's own kernels.
#include <gtest/gtest.h>

#include "device/driver.h"
#include "device/kernel_table.h"

namespace tutti {
namespace {

TEST(Drivers, OfVirtualGpusHasAllKernels) {
  const auto driver = virtualDriver();
  ASSERT_TRUE(driver.isOk()) << driver.status().message();
  EXPECT_TRUE((*driver)->isVirtual());
  const Status loaded = (*driver)->loadKernels(1);
  EXPECT_TRUE(loaded.isOk()) << loaded.message();
  EXPECT_EQ(*virtualDriver(), *driver);
  for (const auto protocol : {device::Protocol::simple, device::Protocol::ll, device::Protocol::ll128}) {
    const auto blocks =
        (*driver)->residentBlocks(1, ncclFloat32, protocol, kMostThreads, sharedBytesFor(device::kMostLinks));
    ASSERT_TRUE(blocks.isOk()) << blocks.status().message();
    EXPECT_GE(*blocks, 16u) << "one a multiprocessor at least";
  }
}

TEST(Drivers, OfGpusIsThereOrSaysWhyNot) {
  const auto driver = cudaDriver();
  EXPECT_EQ(cudaDriver().isOk(), driver.isOk());
  if (driver.isOk()) {
    EXPECT_FALSE((*driver)->isVirtual());
    EXPECT_GT(*(*driver)->deviceCount(), 0);
    const Status loaded = (*driver)->loadKernels(0);
    EXPECT_TRUE(loaded.isOk()) << loaded.message();
  } else {
    EXPECT_EQ(cudaDriver().status().message(), driver.status().message()) << "the answer is kept";
    EXPECT_NE(driver.status().message(), "");
  }
}

}  // namespace
}  // namespace tutti
