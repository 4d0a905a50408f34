// Rank 0 calls ncclSend on the null stream and only then tells rank 1, by an MPI message, to call ncclRecv.
// Started by mpirun -np 2; prints "right" once.
#include <mpi.h>

#include <vector>

#include "check.h"
#include "common/runtime_select.h"

int main(int argc, char** argv) {
  tutti::selectRuntime(argc, argv);
  int rank = 0;
  int ranks = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != 2) {
    std::fprintf(stderr, "start two ranks, not %d\n", ranks);
    return 2;
  }
  ncclUniqueId id{};
  if (rank == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, ranks, id, rank), "ncclCommInitRank");

  int wrong = 0;
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{4} << 20}) {
    void* data = nullptr;
    check(cudaMalloc(&data, count * sizeof(int)), "cudaMalloc");
    std::vector<int> values(count, 0);
    int go = 0;
    if (rank == 0) {
      for (size_t i = 0; i < count; ++i) values[i] = static_cast<int>(i * 3 + count);
      check(cudaMemcpy(data, values.data(), count * sizeof(int), cudaMemcpyHostToDevice), "cudaMemcpy");
      check(ncclSend(data, count, ncclInt, 1, comm, nullptr), "ncclSend");
      MPI_Send(&go, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    } else {
      MPI_Recv(&go, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      check(ncclRecv(data, count, ncclInt, 0, comm, nullptr), "ncclRecv");
    }
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    check(cudaMemcpy(values.data(), data, count * sizeof(int), cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (size_t i = 0; i < count; ++i) wrong += values[i] != static_cast<int>(i * 3 + count);
    check(cudaFree(data), "cudaFree");
  }
  if (rank == 1) std::printf("%s\n", wrong == 0 ? "right" : "wrong");
  check(ncclCommDestroy(comm), "ncclCommDestroy");
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
