#include "core/settings.h"

#include <algorithm>
#include <cstring>

#include "base/params.h"
#include "core/call_check.h"
#include "nccl.h"

namespace tutti {
namespace {

// FIFO slots of shared memory: two of them and the vectors between fit a core's L2 cache. Between hosts a
// slot is a network message, where larger is better.
constexpr size_t kHostSlotBytes = 128 * 1024;
constexpr size_t kNetworkSlotBytes = 512 * 1024;
constexpr size_t kScratchSlices = 8;
// Several rings between hosts keep the links busy while one of them waits for a slice: with two, each stream
// was without data for a third of the time.
constexpr int kNetworkChannels = 4;

size_t defaultSlotBytes(int hosts) {
  const size_t standard = hosts > 1 ? kNetworkSlotBytes : kHostSlotBytes;
  if (!params().buffSize.isSet()) return standard;
  const size_t slot = static_cast<size_t>(params().buffSize()) / kFifoSlots / 64 * 64;
  return std::max<size_t>(slot, 64);
}

int channelCount(int hosts) {
  int channels = hosts > 1 ? kNetworkChannels : 1;
  if (params().minNchannels() > 0) channels = std::max(channels, static_cast<int>(params().minNchannels()));
  if (params().maxNchannels() > 0) channels = std::min(channels, static_cast<int>(params().maxNchannels()));
  return channels;
}

}  // namespace

std::map<std::string, std::string> agreedSettings() {
  return {
      {"library version", std::to_string(NCCL_VERSION_CODE)},
      {"NCCL_BUFFSIZE", params().buffSize.valueText()},
      {"NCCL_MIN_NCHANNELS", params().minNchannels.valueText()},
      {"NCCL_MAX_NCHANNELS", params().maxNchannels.valueText()},
      {"NCCL_ALGO", params().algo.valueText()},
      {"NCCL_PROTO", params().proto.valueText()},
      {"NCCL_SHM_DISABLE", params().shmDisable.valueText()},
      {"TUTTI_CHECK", callsAreChecked() ? "1" : "0"},
      {"NCCL_P2P_DISABLE", params().p2pDisable.valueText()},
      {"NCCL_P2P_LEVEL", params().p2pLevel.valueText()},
      {"TUTTI_HOST_KERNELS", params().hostKernels.valueText()},
      {"NCCL_MULTI_RANK_GPU_ENABLE", params().multiRankGpu.valueText()},
  };
}

EndpointOptions endpointOptions(int ranks, int hosts, const Secret& secret) {
  EndpointOptions options;
  options.channels = channelCount(hosts);
  options.slotBytes = defaultSlotBytes(hosts);
  options.scratchBytes = options.slotBytes * std::max<size_t>(kScratchSlices, static_cast<size_t>(ranks));
  const Secret own = secret.derive("transport");
  static_assert(sizeof own.bytes == sizeof options.secret);
  std::memcpy(options.secret, own.bytes.data(), sizeof options.secret);
  return options;
}

}  // namespace tutti
