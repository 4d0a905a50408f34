// libibverbs: RDMA devices and their ports. Declared here as far as it is used (its interface is stable since
// 2006; a test compares it with the library's own header), and opened at run time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "topology/device_facts.h"

namespace tutti {

/// The beginning of struct ibv_device_attr, with room for the rest.
struct VerbsDeviceAttributes {
  char firmware[64];
  uint64_t nodeGuid;         // big-endian
  uint64_t systemImageGuid;  // big-endian
  uint64_t maxMemoryRegion;
  uint64_t pageSizes;
  uint32_t vendor;
  uint32_t vendorPart;
  uint32_t hardwareVersion;
  int32_t maxQueuePairs;
  char rest[512];
};

/// struct ibv_port_attr, with room for what later versions append.
struct VerbsPortAttributes {
  int32_t state;  // 4: active
  int32_t maxMtu;
  int32_t activeMtu;
  int32_t gidTableLength;
  uint32_t capabilities;
  uint32_t maxMessage;
  uint32_t badPkeys;
  uint32_t qkeyViolations;
  uint16_t pkeyTableLength;
  uint16_t lid;
  uint16_t smLid;
  uint8_t lidMask;
  uint8_t maxVirtualLanes;
  uint8_t smServiceLevel;
  uint8_t subnetTimeout;
  uint8_t initTypeReply;
  uint8_t activeWidth;  // a bit
  uint8_t activeSpeed;  // a bit
  uint8_t physicalState;
  uint8_t linkLayer;  // 1 InfiniBand, 2 Ethernet
  uint8_t flags;
  uint16_t capabilities2;
  char rest[64];
};
static_assert(sizeof(VerbsPortAttributes) == 52 + 64);

constexpr int kVerbsPortActive = 4;

/// Functions of libibverbs. Results: 0, or an errno value (a null pointer, and errno) for failure.
struct VerbsApi {
  using Device = void*;
  using Context = void*;
  Device* (*deviceList)(int* count) = nullptr;
  void (*freeDeviceList)(Device*) = nullptr;
  const char* (*deviceName)(Device) = nullptr;
  uint64_t (*deviceGuid)(Device) = nullptr;  // big-endian
  Context (*open)(Device) = nullptr;
  int (*close)(Context) = nullptr;
  int (*queryDevice)(Context, VerbsDeviceAttributes*) = nullptr;
  int (*queryPort)(Context, uint8_t port, VerbsPortAttributes*) = nullptr;
  int (*queryGid)(Context, uint8_t port, int index, uint8_t gid[16]) = nullptr;
};

Result<VerbsApi> openVerbs(const std::string& file = "libibverbs.so.1");

/// Asks for the ports of all devices, those that are down included. What cannot be found out goes into
/// `notes`.
std::vector<PortFacts> readVerbs(const VerbsApi& verbs, std::vector<std::string>* notes);

/// Mb/s of a port by its width and speed as the verbs have them; 0 for values that nobody knows.
int32_t verbsSpeed(uint8_t width, uint8_t speed);

}  // namespace tutti
