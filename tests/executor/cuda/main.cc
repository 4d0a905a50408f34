// More virtual GPUs than there are by default: a device for each rank of the largest team.
#include <gtest/gtest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  ::setenv("TUTTI_HOST_DEVICES", "9", 1);
  ::setenv("TUTTI_HOST_KERNELS", "1", 1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
