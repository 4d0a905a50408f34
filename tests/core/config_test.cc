#include "core/config.h"

#include <gtest/gtest.h>

#include "core/operation_run.h"
#include "core/validate.h"

namespace tutti {
namespace {

TEST(Config, DefaultsLeaveTheSetupAlone) {
  CommunicatorSetup setup;
  EXPECT_TRUE(applyConfig(nullptr, setup).isOk());
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  EXPECT_TRUE(applyConfig(&config, setup).isOk());
  EXPECT_EQ(setup.minChannels, 0);
  EXPECT_EQ(setup.name, "");
}

TEST(Config, AcceptsTheShorterStructureOfAnOlderCaller) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.size = offsetof(ncclConfig_t, splitShare);
  config.maxCTAs = 3;
  config.commName = "behind the caller's structure";  // memory that an old caller does not have
  CommunicatorSetup setup;
  EXPECT_TRUE(applyConfig(&config, setup).isOk());
  EXPECT_EQ(setup.maxChannels, 3);
  EXPECT_EQ(setup.name, "");
}

TEST(Config, RefusesWhatMakesNoSense) {
  CommunicatorSetup setup;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 2;
  EXPECT_EQ(applyConfig(&config, setup).code(), ncclInvalidArgument);
  config = NCCL_CONFIG_INITIALIZER;
  config.minCTAs = 4;
  config.maxCTAs = 2;
  EXPECT_EQ(applyConfig(&config, setup).code(), ncclInvalidArgument);
  config = NCCL_CONFIG_INITIALIZER;
  config.magic = 0;
  EXPECT_EQ(applyConfig(&config, setup).code(), ncclInvalidArgument);
  config = NCCL_CONFIG_INITIALIZER;
  config.size = 3;
  EXPECT_EQ(applyConfig(&config, setup).code(), ncclInvalidArgument);
}

TEST(Validate, SizesThatDoNotFitTheAddressSpaceAreRefused) {
  EXPECT_TRUE(checkSize(size_t{1} << 40, 8, 8).isOk());
  EXPECT_FALSE(checkSize(SIZE_MAX, 1, 1).isOk());
  EXPECT_FALSE(checkSize(SIZE_MAX / 8, 4, 4).isOk());
  EXPECT_TRUE(checkSize(static_cast<size_t>(PTRDIFF_MAX), 1, 1).isOk());
}

TEST(Fingerprint, DiffersWhereCallsDiffer) {
  Operation a;
  a.count = 100;
  a.type = ncclFloat32;
  Operation b = a;
  EXPECT_EQ(fingerprint(a), fingerprint(b));
  b.count = 101;
  EXPECT_NE(fingerprint(a), fingerprint(b));
  b = a;
  b.type = ncclInt32;
  EXPECT_NE(fingerprint(a), fingerprint(b));
  b = a;
  b.root = 3;
  EXPECT_NE(fingerprint(a), fingerprint(b));
  b = a;
  b.reduction.spec.op = Reduction::max;
  EXPECT_NE(fingerprint(a), fingerprint(b));
  b = a;
  b.collective = Collective::broadcast;
  EXPECT_NE(fingerprint(a), fingerprint(b));
  EXPECT_NE(describeFingerprint(fingerprint(b)).find("100"), std::string::npos);
}

}  // namespace
}  // namespace tutti
