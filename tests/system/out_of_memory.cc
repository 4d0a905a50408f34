// A program of two ranks in which one allocation fails: `out_of_memory N` makes the Nth after the start of
// ncclGetUniqueId throw std::bad_alloc, on whatever thread it is. It ends with 0 when every call returned,
// whatever it returned, and says "failed" when one returned an error.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>

namespace {
std::atomic<long> countdown{0};  // 1: the next one fails; 0 and below: none does
}

void* operator new(std::size_t bytes) {
  if (countdown.load(std::memory_order_relaxed) > 0 && countdown.fetch_sub(1) == 1) throw std::bad_alloc();
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

constexpr int kRanks = 2;
constexpr size_t kCount = 1000;

ncclResult_t runRank(int rank, const ncclUniqueId& id, int* data, cudaStream_t stream) {
  ncclComm_t comm = nullptr;
  ncclResult_t result = ncclCommInitRank(&comm, kRanks, id, rank);
  for (int call = 0; call < 2 && result == ncclSuccess; ++call) {
    result = ncclAllReduce(data, data, kCount, ncclInt32, ncclSum, comm, stream);
    cudaStreamSynchronize(stream);
    if (result == ncclSuccess) ncclCommGetAsyncError(comm, &result);
  }
  if (result == ncclSuccess) return ncclCommDestroy(comm);
  if (comm != nullptr) ncclCommAbort(comm);
  return result;
}

}  // namespace

int main(int, char** arguments) {
  int* data[kRanks] = {};
  cudaStream_t streams[kRanks] = {};
  std::atomic<bool> go{false};
  ncclUniqueId id{};
  ncclResult_t results[kRanks] = {};
  std::thread threads[kRanks];
  for (int rank = 0; rank < kRanks; ++rank) {
    cudaMalloc(reinterpret_cast<void**>(&data[rank]), kCount * sizeof(int));
    cudaStreamCreate(&streams[rank]);
    threads[rank] = std::thread([&, rank] {
      go.wait(false);
      if (results[rank] == ncclSuccess) results[rank] = runRank(rank, id, data[rank], streams[rank]);
    });
  }
  countdown = std::strtol(arguments[1], nullptr, 10);
  const ncclResult_t made = ncclGetUniqueId(&id);
  for (ncclResult_t& result : results) result = made;
  go = true;
  go.notify_all();
  for (std::thread& thread : threads) thread.join();
  countdown = 0;
  for (const ncclResult_t result : results)
    if (result != ncclSuccess) std::printf("failed: %s\n", ncclGetErrorString(result));
  return 0;
}
