#include <gmock/gmock.h>

#include "hostrt/support.h"

using testing::HasSubstr;

TEST(Process, StartsNoThreadForWorkThatRunsInTheCaller) {
  const Outcome outcome = runHelper("threads-at-start");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  // A thread sanitizer has a thread of its own.
#ifndef __SANITIZE_THREAD__
  EXPECT_EQ(outcome.output, "threads 1\n");
#endif
}

TEST(Process, IdleWorkersEnd) {
  const Outcome outcome = runHelper("workers-end");
  EXPECT_EQ(outcome.status, 0);
#ifndef __SANITIZE_THREAD__
  EXPECT_THAT(outcome.output, HasSubstr("then 1\n"));
#endif
}

TEST(Process, ExitsWhileStreamsAreBusy) {
  for (int i = 0; i < 3; ++i) {
    const Outcome outcome = runHelper("exit-busy");
    EXPECT_EQ(outcome.status, 0) << outcome.output;
  }
}

TEST(Process, StaticObjectsMayUseTheRuntimeAfterMain) {
  const Outcome outcome = runHelper("use-in-destructor");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, "released\n");
}

TEST(Process, AForkedChildExitsAndTheParentGoesOn) { EXPECT_EQ(runHelper("fork").status, 42); }

TEST(Process, AForkedChildThatCallsCudaGetsAnError) { EXPECT_EQ(runHelper("fork-use").status, 42); }

TEST(Process, AMissingFunctionIsNamedOnce) {
  const Outcome outcome = runHelper("missing-function");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              HasSubstr("NCCL WARN the host runtime does not implement cudaCreateTextureObject"));
  EXPECT_EQ(outcome.output.find("cudaCreateTextureObject"), outcome.output.rfind("cudaCreateTextureObject"));
}

TEST(Process, DeviceCountFollowsTheEnvironment) {
  EXPECT_EQ(runHelper("devices", "TUTTI_HOST_DEVICES=2").output, "cudaSuccess 2 7e00:00:00.0 7e00:01:00.0\n");
  EXPECT_THAT(runHelper("devices").output, HasSubstr("cudaSuccess 8 "));
  EXPECT_EQ(runHelper("devices", "TUTTI_HOST_DEVICES=0").output, "cudaErrorNoDevice 0\n");
}

TEST(Process, ABadDeviceCountIsAnErrorThatNamesTheVariable) {
  for (const char* value : {"-1", "abc", "4x", "1025", "99999999999999999999"}) {
    const Outcome outcome = runHelper("devices", std::string("TUTTI_HOST_DEVICES=") + value);
    EXPECT_THAT(outcome.output,
                HasSubstr(std::string("TUTTI_HOST_DEVICES=") + value + ": expected a number"));
    EXPECT_THAT(outcome.output, HasSubstr("cudaErrorNoDevice 0"));
  }
}

TEST(Process, VisibleDevicesChooseAndOrderTheSlots) {
  EXPECT_EQ(runHelper("devices", "CUDA_VISIBLE_DEVICES=3,1").output,
            "cudaSuccess 2 7e00:03:00.0 7e00:01:00.0\n");
  EXPECT_EQ(runHelper("devices", "CUDA_VISIBLE_DEVICES=2,9,1").output, "cudaSuccess 1 7e00:02:00.0\n");
  // Settings that keep programs off GPUs do not concern host devices.
  EXPECT_THAT(runHelper("devices", "CUDA_VISIBLE_DEVICES=").output, HasSubstr("cudaSuccess 8 "));
  EXPECT_THAT(runHelper("devices", "CUDA_VISIBLE_DEVICES=NoDevFiles").output, HasSubstr("cudaSuccess 8 "));
}
