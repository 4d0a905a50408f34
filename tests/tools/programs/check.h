// For programs as users write them: a failed call ends the program with its name and the error's.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                            \
  do {                                                                                         \
    const cudaError_t error = (call);                                                          \
    if (error != cudaSuccess) {                                                                \
      std::printf("%s: %s (%s)\n", #call, cudaGetErrorName(error), cudaGetErrorString(error)); \
      std::exit(1);                                                                            \
    }                                                                                          \
  } while (0)
