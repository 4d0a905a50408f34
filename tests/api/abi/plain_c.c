/* A C99 program that knows nothing of CUDA: two ranks as threads would need pthreads, so one rank, with every
 * kind of argument that crosses the border by value or by pointer. */
#include <nccl.h>
#include <nccl_device.h>
#include <stdio.h>
#include <tutti/tutti.h>

#define MUST(call)                                                                       \
  do {                                                                                   \
    const ncclResult_t result = (call);                                                  \
    if (result != ncclSuccess) {                                                         \
      printf("%s: %s: %s\n", #call, ncclGetErrorString(result), ncclGetLastError(NULL)); \
      return 1;                                                                          \
    }                                                                                    \
  } while (0)

int main(void) {
  int version = 0, ranks = 0, i;
  ncclUniqueId id;
  ncclComm_t comm = NCCL_COMM_NULL;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
  ncclRedOp_t half;
  float scalar = 0.5F;
  float* buffer = NULL;
  ncclTeam_t world;

  MUST(ncclGetVersion(&version));
  if (version != NCCL_VERSION(2, 28, 9)) return 2;
  MUST(ncclGetUniqueId(&id));
  config.blocking = 1;
  config.commName = "plain";
  MUST(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  MUST(pncclCommCount(comm, &ranks));
  MUST(ncclCommQueryProperties(comm, &properties));
  world = ncclTeamWorld(comm);
  if (ranks != 1 || properties.nRanks != 1 || world.nRanks != 1 || world.stride != 1) return 3;
  MUST(ncclMemAlloc((void**)&buffer, 1000 * sizeof(float)));
  for (i = 0; i < 1000; ++i) buffer[i] = (float)i;
  MUST(ncclRedOpCreatePreMulSum(&half, &scalar, ncclFloat32, ncclScalarHostImmediate, comm));
  MUST(ncclGroupStart());
  MUST(ncclAllReduce(buffer, buffer, 1000, ncclFloat32, half, comm, NULL));
  MUST(ncclGroupEnd());
  MUST(tuttiStreamSynchronize(NULL));
  for (i = 0; i < 1000; ++i)
    if (buffer[i] != 0.5F * (float)i) return 4;
  MUST(ncclRedOpDestroy(half, comm));
  MUST(ncclMemFree(buffer));
  MUST(ncclCommFinalize(comm));
  MUST(ncclCommDestroy(comm));
  puts("plain C: all right");
  return 0;
}
