/* A driver with one GPU. Results are written where the libraries' headers say that they lie, as offsets. */
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))
#define GPU ((void*)1)

static int number(void* at, unsigned value) {
  memcpy(at, &value, sizeof value);
  return 0;
}
static int text(char* at, unsigned bytes, const char* value) {
  if (strlen(value) >= bytes) return 7;
  strcpy(at, value);
  return 0;
}
/* nvmlPciInfo_t: busIdLegacy[16], domain, bus, device, pciDeviceId, pciSubSystemId, busId[32] */
static int pci(char* info, const char* busId) { return text(info + 36, 32, busId); }

PUBLIC int nvmlInit_v2(void) { return 0; }
PUBLIC int nvmlShutdown(void) { return 0; }
PUBLIC const char* nvmlErrorString(int error) { return error ? "broken" : "fine"; }
PUBLIC int nvmlDeviceGetCount_v2(unsigned* count) { return number(count, 1); }
PUBLIC int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = GPU;
  return index == 0 ? 0 : 2;
}
PUBLIC int nvmlDeviceGetPciInfo_v3(void* device, char* info) {
  return device == GPU ? pci(info, "00000000:0A:00.0") : 2;
}
PUBLIC int nvmlDeviceGetName(void* device, char* at, unsigned bytes) {
  return device == GPU ? text(at, bytes, "Fake") : 2;
}
PUBLIC int nvmlDeviceGetUUID(void* device, char* at, unsigned bytes) {
  return device == GPU ? text(at, bytes, "GPU-1") : 2;
}
PUBLIC int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  *major = 10;
  *minor = 3;
  return device == GPU ? 0 : 2;
}
PUBLIC int nvmlDeviceGetMaxPcieLinkGeneration(void* device, unsigned* at) {
  return device == GPU ? number(at, 6) : 2;
}
PUBLIC int nvmlDeviceGetMaxPcieLinkWidth(void* device, unsigned* at) {
  return device == GPU ? number(at, 8) : 2;
}
PUBLIC int nvmlDeviceGetNvLinkState(void* device, unsigned link, int* isActive) {
  *isActive = 1;
  return device == GPU && link == 0 ? 0 : 2;
}
PUBLIC int nvmlDeviceGetNvLinkVersion(void* device, unsigned link, unsigned* at) {
  return device == GPU && link == 0 ? number(at, 5) : 2;
}
PUBLIC int nvmlDeviceGetNvLinkCapability(void* device, unsigned link, int capability, unsigned* at) {
  return device == GPU && link == 0 ? number(at, capability == 0) : 2;
}
PUBLIC int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, char* info) {
  return device == GPU && link == 0 ? pci(info, "00000000:1C:00.0") : 2;
}
PUBLIC int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned link, int* type) {
  *type = 2;
  return device == GPU && link == 0 ? 0 : 2;
}
PUBLIC int nvmlDeviceGetP2PStatus(void* one, void* other, int index, int* status) {
  *status = index;
  return one == GPU && other == GPU ? 0 : 2;
}
/* version, clusterUuid[16], status, cliqueId, state (a byte), healthMask */
PUBLIC int nvmlDeviceGetGpuFabricInfoV(void* device, char* info) {
  unsigned version = 0;
  memcpy(&version, info, sizeof version);
  if (device != GPU || version != (36u | 2u << 24)) return 25;
  for (int i = 0; i < 16; ++i) info[4 + i] = (char)i;
  number(info + 20, 0);
  number(info + 24, 77);
  info[28] = 3;
  return 0;
}
/* of 40 bytes each: fieldId, scopeId, timestamp, latencyUsec, valueType, nvmlReturn, value */
PUBLIC int nvmlDeviceGetFieldValues(void* device, int count, char* values) {
  for (int i = 0; i < count; ++i, values += 40) {
    unsigned field = 0;
    memcpy(&field, values, sizeof field);
    number(values + 28, 0);
    number(values + 32, field == 170 ? 1 : field == 171 ? 1 : field == 172 ? 42000 : 0);
  }
  return device == GPU ? 0 : 2;
}

PUBLIC int cuInit(unsigned flags) { return (int)flags; }
PUBLIC int cuDeviceGetCount(int* count) { return number(count, 1); }
PUBLIC int cuDeviceGet(int* device, int index) { return number(device, (unsigned)index + 5); }
PUBLIC int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? 10 : attribute == 76 ? 3 : attribute == 116 ? 1 : 0;
  return device == 5 ? 0 : 101;
}
PUBLIC int cuDeviceGetPCIBusId(char* at, int bytes, int device) {
  return device == 5 ? text(at, (unsigned)bytes, "0000:0A:00.0") : 101;
}
