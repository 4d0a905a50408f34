// NVML, the library of NVIDIA's driver: GPUs, their NVLinks, and who reaches whom. Declared here as far as it
// is used (its interface is stable), and opened at run time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "topology/device_facts.h"

namespace tutti {

// Structures of nvml.h.
struct NvmlPciInfo {
  char shortBusId[16];
  uint32_t domain;
  uint32_t bus;
  uint32_t device;
  uint32_t pciDeviceId;
  uint32_t pciSubSystemId;
  char busId[32];
};
struct NvmlFieldValue {
  uint32_t fieldId;
  uint32_t scopeId;
  int64_t timestamp;
  int64_t latency;
  int32_t valueType;
  int32_t result;
  union {
    uint32_t number;
    uint64_t wide;
  };
};
struct NvmlFabricInfo {
  uint32_t version;
  uint8_t cluster[16];
  int32_t status;
  uint32_t clique;
  uint8_t state;
  uint32_t health;
};
static_assert(sizeof(NvmlPciInfo) == 68 && sizeof(NvmlFieldValue) == 40 && sizeof(NvmlFabricInfo) == 36);

constexpr int kNvmlSuccess = 0;
constexpr int kNvmlInvalidArgument = 2;
constexpr int kNvmlNotSupported = 3;
constexpr uint32_t kNvmlCapP2p = 0;          // NVML_NVLINK_CAP_P2P_SUPPORTED
constexpr uint32_t kNvmlC2cCount = 170;      // NVML_FI_DEV_C2C_LINK_COUNT
constexpr uint32_t kNvmlC2cStatus = 171;     // NVML_FI_DEV_C2C_LINK_GET_STATUS
constexpr uint32_t kNvmlC2cBandwidth = 172;  // NVML_FI_DEV_C2C_LINK_GET_MAX_BW, MB/s
constexpr uint32_t kNvmlFabricVersion = sizeof(NvmlFabricInfo) | 2u << 24;
constexpr uint8_t kNvmlFabricComplete = 3;

/// Functions of NVML. Those in the second part may be null: drivers differ.
struct NvmlApi {
  using Device = void*;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*deviceCount)(uint32_t* count) = nullptr;
  int (*deviceByIndex)(uint32_t index, Device* device) = nullptr;
  int (*pciInfo)(Device, NvmlPciInfo*) = nullptr;

  const char* (*errorText)(int) = nullptr;
  int (*name)(Device, char* text, uint32_t bytes) = nullptr;
  int (*uuid)(Device, char* text, uint32_t bytes) = nullptr;
  int (*computeCapability)(Device, int* major, int* minor) = nullptr;
  int (*pciGeneration)(Device, uint32_t*) = nullptr;
  int (*pciWidth)(Device, uint32_t*) = nullptr;
  int (*nvlinkState)(Device, uint32_t link, int* isActive) = nullptr;
  int (*nvlinkVersion)(Device, uint32_t link, uint32_t*) = nullptr;
  int (*nvlinkCapability)(Device, uint32_t link, uint32_t capability, uint32_t*) = nullptr;
  int (*nvlinkRemotePci)(Device, uint32_t link, NvmlPciInfo*) = nullptr;
  int (*nvlinkRemoteType)(Device, uint32_t link, int*) = nullptr;  // 0 GPU, 1 CPU, 2 NVSwitch, 255 unknown
  int (*p2pStatus)(Device, Device, int index, int* status) = nullptr;
  int (*fabricInfo)(Device, NvmlFabricInfo*) = nullptr;
  int (*fieldValues)(Device, int count, NvmlFieldValue*) = nullptr;
};

/// Opens the driver's library.
Result<NvmlApi> openNvml(const std::string& file = "libnvidia-ml.so.1");

/// Asks for all GPUs. What cannot be found out goes into `notes`; a GPU whose address is not told is left
/// out. Initialises the library and shuts it down again.
std::vector<GpuFacts> readNvml(const NvmlApi& nvml, std::vector<std::string>* notes);

}  // namespace tutti
