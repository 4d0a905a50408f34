// gpu-abort: an AllReduce that cannot end, since a rank does not take part, is aborted. Says what happened;
// status 0 when the call was running, the abort returned and the stream became idle, all in time.
#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "common/runtime_select.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kCount = 1 << 20;

[[noreturn]] void fail(const std::string& message) {
  std::printf("gpu-abort: %s\n", message.c_str());
  std::fflush(stdout);
  std::_Exit(1);  // kernels may still spin, and an ordinary exit would wait for them
}

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail(std::string(what) + ": " + cudaGetErrorString(error));
}

void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  fail(std::string(what) + ": " + ncclGetErrorString(result) + ": " + ncclGetLastError(nullptr));
}

struct Rank {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* buffer = nullptr;
  int device = 0;
};

std::vector<Rank> makeRanks(int count) {
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  if (devices < 1) fail("there is no device");
  std::vector<Rank> ranks(static_cast<size_t>(count));
  ncclUniqueId id;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  check(ncclGroupStart(), "ncclGroupStart");
  for (int rank = 0; rank < count; ++rank) {
    Rank& one = ranks[static_cast<size_t>(rank)];
    one.device = rank % devices;
    check(cudaSetDevice(one.device), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&one.stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cudaMalloc(reinterpret_cast<void**>(&one.buffer), kCount * sizeof(float)), "cudaMalloc");
    check(ncclCommInitRank(&one.comm, count, id, rank), "ncclCommInitRank");
  }
  check(ncclGroupEnd(), "ncclGroupEnd");
  return ranks;
}

void expectRunning(const Rank& rank) {
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  if (cudaStreamQuery(rank.stream) != cudaErrorNotReady) fail("the call ended although a rank is missing");
}

void abortAll(const std::vector<Rank>& ranks) {
  // Of a process that hangs here, the caller's time limit makes an end.
  for (const Rank& rank : ranks) check(ncclCommAbort(rank.comm), "ncclCommAbort");
}

void expectIdle(const std::vector<Rank>& ranks) {
  const auto end = Clock::now() + std::chrono::seconds(5);
  for (const Rank& rank : ranks)
    while (cudaStreamQuery(rank.stream) == cudaErrorNotReady) {
      if (Clock::now() > end) fail("5 s after the abort a stream still has work");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

}  // namespace

int main(int argc, char** argv) {
  tutti::selectRuntime(argc, argv);
  const int count = argc > 1 ? std::atoi(argv[1]) : 2;
  if (count < 2) {
    std::fputs("usage: gpu-abort [RANKS], at least 2\n", stderr);
    return 2;
  }
  const std::vector<Rank> ranks = makeRanks(count);
  check(ncclGroupStart(), "ncclGroupStart");
  for (size_t i = 0; i + 1 < ranks.size(); ++i) {
    check(cudaSetDevice(ranks[i].device), "cudaSetDevice");
    check(ncclAllReduce(ranks[i].buffer, ranks[i].buffer, kCount, ncclFloat, ncclSum, ranks[i].comm,
                        ranks[i].stream),
          "ncclAllReduce");
  }
  check(ncclGroupEnd(), "ncclGroupEnd");
  expectRunning(ranks[0]);
  const auto start = Clock::now();
  abortAll(ranks);
  expectIdle(ranks);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  // The device is whole: it can still be used.
  for (const Rank& rank : ranks) {
    check(cudaSetDevice(rank.device), "cudaSetDevice");
    check(cudaMemset(rank.buffer, 0, kCount * sizeof(float)), "cudaMemset after the abort");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize after the abort");
  }
  std::printf("aborted %d ranks, of which one had not called, in %.3f s\n", count, seconds);
  return 0;
}
