// Ranks on several hosts without MPI. Start one process per rank, on every host with the same NCCL_COMM_ID,
// an address of the host of rank 0 and a free port:
//   host A:  NCCL_COMM_ID=10.0.0.1:29500 ./example_two_hosts 2 0
//   host B:  NCCL_COMM_ID=10.0.0.1:29500 ./example_two_hosts 2 1
// On one host, or hosts that share a folder, a file can carry the id instead:
//   ./example_two_hosts 2 0 /tmp/id &  ./example_two_hosts 2 1 /tmp/id
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "arguments.h"
#include "check.h"

namespace {

/// Rank 0 writes the id beside the file and renames it, so that nobody reads half of it.
void writeId(const ncclUniqueId& id, const std::string& path) {
  std::ofstream(path + ".new", std::ios::binary).write(id.internal, sizeof id.internal);
  if (std::rename((path + ".new").c_str(), path.c_str()) != 0) std::exit(1);
}

void readId(ncclUniqueId& id, const std::string& path) {
  for (int tries = 0; tries < 600; ++tries) {
    std::ifstream file(path, std::ios::binary);
    if (file.read(id.internal, sizeof id.internal)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  std::fprintf(stderr, "%s: rank 0 did not write it within a minute\n", path.c_str());
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4 || (argc < 4 && !std::getenv("NCCL_COMM_ID"))) {
    std::fprintf(stderr, "usage: %s RANKS RANK [FILE]   (without FILE: set NCCL_COMM_ID=host:port)\n",
                 argv[0]);
    return 2;
  }
  constexpr size_t kCount = 1 << 20;
  const int ranks = numberFrom(argv[1], "RANKS", 1, 1 << 20);
  const int rank = numberFrom(argv[2], "RANK", 0, ranks - 1);

  // With NCCL_COMM_ID every process may ask for the id: it is the same everywhere.
  ncclUniqueId id{};
  const bool byFile = argc > 3;
  if (rank == 0 || !byFile) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  if (byFile && rank == 0) writeId(id, argv[3]);
  if (byFile && rank != 0) readId(id, argv[3]);
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, ranks, id, rank), "ncclCommInitRank");

  // Everyone sends to the next rank and receives from the one before it, then all add up what they got.
  float* sent = nullptr;
  float* got = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&sent), kCount * sizeof(float)), "cudaMalloc");
  check(cudaMalloc(reinterpret_cast<void**>(&got), kCount * sizeof(float)), "cudaMalloc");
  std::vector<float> values(kCount, static_cast<float>(rank + 1));
  check(cudaMemcpy(sent, values.data(), kCount * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
  check(ncclGroupStart(), "ncclGroupStart");
  check(ncclSend(sent, kCount, ncclFloat, (rank + 1) % ranks, comm, nullptr), "ncclSend");
  check(ncclRecv(got, kCount, ncclFloat, (rank + ranks - 1) % ranks, comm, nullptr), "ncclRecv");
  check(ncclGroupEnd(), "ncclGroupEnd");
  check(ncclAllReduce(got, got, kCount, ncclFloat, ncclSum, comm, nullptr), "ncclAllReduce");
  check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  checkOperations(comm);
  check(cudaMemcpy(values.data(), got, kCount * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");

  const float expected = static_cast<float>(ranks * (ranks + 1)) / 2;
  size_t wrong = 0;
  for (const float value : values) wrong += value != expected;
  std::printf("rank %d of %d: the sum is %g, %zu wrong\n", rank, ranks, values[0], wrong);
  check(cudaFree(sent), "cudaFree");
  check(cudaFree(got), "cudaFree");
  check(ncclCommDestroy(comm), "ncclCommDestroy");
  return wrong == 0 ? 0 : 1;
}
