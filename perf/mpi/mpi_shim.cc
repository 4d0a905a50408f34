#include "common/mpi_shim.h"

#include <mpi.h>

#include <limits>

namespace {

// MPI's counts are int: longer messages go in pieces of this many bytes.
constexpr size_t kPiece = std::numeric_limits<int>::max() / 2;

int init(int* rank, int* size) {
  int provided = 0;
  int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  if (error == MPI_SUCCESS) error = MPI_Comm_rank(MPI_COMM_WORLD, rank);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(MPI_COMM_WORLD, size);
  return error;
}

int finalize() { return MPI_Finalize(); }
void abortAll(int code) { MPI_Abort(MPI_COMM_WORLD, code); }
int barrier() { return MPI_Barrier(MPI_COMM_WORLD); }

int broadcast(void* data, size_t bytes, int root) {
  for (size_t done = 0; done < bytes;) {
    const size_t piece = bytes - done < kPiece ? bytes - done : kPiece;
    const int error =
        MPI_Bcast(static_cast<char*>(data) + done, static_cast<int>(piece), MPI_BYTE, root, MPI_COMM_WORLD);
    if (error != MPI_SUCCESS) return error;
    done += piece;
  }
  return MPI_SUCCESS;
}

int allGather(const void* one, void* all, size_t bytes) {
  if (bytes > kPiece) return MPI_ERR_COUNT;
  const int count = static_cast<int>(bytes);
  return MPI_Allgather(one, count, MPI_BYTE, all, count, MPI_BYTE, MPI_COMM_WORLD);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const tuttiPerfMpi_v1* tuttiPerfMpi_v1_get(void) {
  static const tuttiPerfMpi_v1 table = {init, finalize, abortAll, barrier, broadcast, allGather};
  return &table;
}
