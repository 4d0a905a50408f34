// One rank per MPI process: mpirun -np 4 example_mpi
#include <mpi.h>

#include <vector>

#include "check.h"

int main(int argc, char** argv) {
  constexpr size_t kCount = 1 << 20;
  int rank = 0;
  int ranks = 1;
  int localRank = 0;
  MPI_Init(&argc, &argv);
  if (argc > 1) {
    std::fprintf(stderr, "usage: mpirun -np RANKS %s   (no arguments)\n", argv[0]);
    MPI_Finalize();
    return 2;
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm local = MPI_COMM_NULL;  // the ranks of this host
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local);
  MPI_Comm_rank(local, &localRank);

  int devices = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  check(cudaSetDevice(localRank % devices), "cudaSetDevice");

  // Rank 0 makes the id, MPI brings it to the others.
  ncclUniqueId id{};
  if (rank == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, ranks, id, rank), "ncclCommInitRank");

  cudaStream_t stream = nullptr;
  float* data = nullptr;
  check(cudaStreamCreate(&stream), "cudaStreamCreate");
  check(cudaMalloc(reinterpret_cast<void**>(&data), kCount * sizeof(float)), "cudaMalloc");
  std::vector<float> values(kCount, static_cast<float>(rank + 1));
  check(cudaMemcpy(data, values.data(), kCount * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
  check(ncclAllReduce(data, data, kCount, ncclFloat, ncclSum, comm, stream), "ncclAllReduce");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  checkOperations(comm);
  check(cudaMemcpy(values.data(), data, kCount * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");

  const float expected = static_cast<float>(ranks * (ranks + 1)) / 2;
  size_t wrong = 0;
  for (const float value : values) wrong += value != expected;
  std::printf("rank %d of %d: the sum is %g, %zu wrong\n", rank, ranks, values[0], wrong);

  check(cudaFree(data), "cudaFree");
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  check(ncclCommDestroy(comm), "ncclCommDestroy");
  MPI_Comm_free(&local);
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
