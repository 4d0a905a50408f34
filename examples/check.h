// Ends the program with a message when a call of CUDA or NCCL fails.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdio>
#include <cstdlib>

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

inline void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, ncclGetErrorString(result), ncclGetLastError(nullptr));
  std::exit(1);
}

/// What the operations that have run came to: one that fails lets its stream go on, with wrong data.
inline void checkOperations(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError");
  if (state == ncclSuccess) return;
  std::fprintf(stderr, "an operation failed: %s: %s\n", ncclGetErrorString(state), ncclGetLastError(comm));
  std::exit(1);
}
