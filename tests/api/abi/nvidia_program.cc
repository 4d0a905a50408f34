// Compiled against NVIDIA's nccl.h and nccl_device.h (never ours), run with our library.
#include <nccl.h>
#include <nccl_device.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#ifdef TUTTI_NCCL_DEVICE_H_
#error "this must be NVIDIA's header"
#endif

#define MUST(call)                                                                          \
  do {                                                                                      \
    const ncclResult_t result = (call);                                                     \
    if (result != ncclSuccess) {                                                            \
      printf("%s: %s: %s\n", #call, ncclGetErrorString(result), ncclGetLastError(nullptr)); \
      return 1;                                                                             \
    }                                                                                       \
  } while (0)

constexpr int kRanks = 3;
constexpr int kCount = 1000;

int main() {
  int version = 0;
  ncclUniqueId id;
  ncclComm_t comms[kRanks];
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclLsaBarrierHandle_t barrier;
  ncclDevResourceRequirements_t required;
  ncclDevCommRequirements_t requirements{};
  ncclDevComm_t deviceComm;
  ncclRedOp_t twice[kRanks];
  const double two = 2;
  std::vector<double> buffers[kRanks];

  MUST(ncclGetVersion(&version));
  printf("compiled against %d, running on %d\n", NCCL_VERSION_CODE, version);
  if (version != 22809) return 2;
  MUST(ncclGetUniqueId(&id));
  config.commName = "compiled elsewhere";
  config.minCTAs = 1;
  config.maxCTAs = 4;
  MUST(ncclGroupStart());
  for (int rank = 0; rank < kRanks; ++rank) {
    if (cudaSetDevice(rank) != cudaSuccess) return 8;
    MUST(ncclCommInitRankConfig(&comms[rank], kRanks, id, rank, &config));
  }
  MUST(ncclGroupEnd());
  for (int rank = 0; rank < kRanks; ++rank) {
    int said = -1;
    const ncclTeam_t world = ncclTeamWorld(comms[rank]);
    MUST(ncclCommUserRank(comms[rank], &said));
    if (said != rank || world.rank != rank || world.nRanks != kRanks || world.stride != 1) return 3;
    if (ncclTeamRankToWorld(comms[rank], world, 2) != 2) return 3;
    buffers[rank].resize(kCount);
    for (int i = 0; i < kCount; ++i) buffers[rank][i] = rank + i;
    MUST(ncclRedOpCreatePreMulSum(&twice[rank], const_cast<double*>(&two), ncclFloat64,
                                  ncclScalarHostImmediate, comms[rank]));
  }
  MUST(ncclGroupStart());
  for (int rank = 0; rank < kRanks; ++rank)
    MUST(ncclAllReduce(buffers[rank].data(), buffers[rank].data(), kCount, ncclFloat64, twice[rank],
                       comms[rank], nullptr));
  MUST(ncclGroupEnd());
  for (int rank = 0; rank < kRanks; ++rank)
    if (cudaSetDevice(rank) != cudaSuccess || cudaStreamSynchronize(nullptr) != cudaSuccess) return 8;
  for (int rank = 0; rank < kRanks; ++rank)
    for (int i = 0; i < kCount; ++i)
      if (buffers[rank][i] != 2.0 * (3 * i + 3)) return 4;

  if (ncclLLA2ACalcSlots(10, 12) != 20) return 5;
  MUST(ncclLsaBarrierCreateRequirement(ncclTeamWorld(comms[0]), 5, &barrier, &required));
  if (barrier.nBarriers != 5 || required.bufferSize != 5 * (3 + 3) * 4 ||
      required.outBufferHandle != &barrier.bufHandle)
    return 6;
  /* Without a GPU there are no communicators for kernels, and the answer says so. */
  if (ncclDevCommCreate(comms[0], &requirements, &deviceComm) != ncclInvalidUsage) return 7;
  printf("%s\n", ncclGetLastError(nullptr));
  for (int rank = 0; rank < kRanks; ++rank) MUST(ncclRedOpDestroy(twice[rank], comms[rank]));
  MUST(ncclGroupStart());
  for (int rank = 0; rank < kRanks; ++rank) MUST(ncclCommDestroy(comms[rank]));
  MUST(ncclGroupEnd());
  puts("compiled against NVIDIA's header: all right");
  return 0;
}
