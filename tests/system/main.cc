#include <gtest/gtest.h>

#include "common/runtime_select.h"

int main(int argc, char** argv) {
  tutti::selectRuntime(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
