// The border between the perf programs and MPI: a table that libtutti_perf_mpi.so exports. Only that library
// links MPI, and it is opened only when mpirun started the program, so that the programs also run where there
// is no MPI.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Functions return 0, or MPI's error code. Only the thread that called init may call them.
typedef struct tuttiPerfMpi_v1 {
  int (*init)(int* rank, int* size);
  int (*finalize)(void);
  void (*abort)(int code);
  int (*barrier)(void);
  int (*broadcast)(void* data, size_t bytes, int root);
  /// `bytes` from each rank into `all`, in rank order.
  int (*allGather)(const void* one, void* all, size_t bytes);
} tuttiPerfMpi_v1;

/// const tuttiPerfMpi_v1* tuttiPerfMpi_v1_get(void)
typedef const tuttiPerfMpi_v1* (*tuttiPerfMpiGet_t)(void);

#ifdef __cplusplus
}
#endif
