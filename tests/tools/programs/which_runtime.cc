// A program that chooses its runtime as ours do, and says what it got: "host 8 [arguments]".
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdio>

#include "common/runtime_select.h"

int main(int argc, char** argv) {
  tutti::selectRuntime(argc, argv);
  int count = 0;
  cudaGetDeviceCount(&count);
  std::printf("%s %d", dlsym(RTLD_DEFAULT, "tuttiHostRuntime_v1_get") ? "host" : "cuda", count);
  for (int i = 1; i < argc; ++i) std::printf(" %s", argv[i]);
  std::printf("\n");
  return 0;
}
