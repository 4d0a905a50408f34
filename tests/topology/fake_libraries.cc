#include "topology/fake_libraries.h"

#include <endian.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>

namespace tutti::test {
namespace {

const FakeGpu& gpuOf(NvmlApi::Device device) { return *static_cast<const FakeGpu*>(device); }
const FakeGpu::Link* linkOf(NvmlApi::Device device, uint32_t link) {
  const FakeGpu& gpu = gpuOf(device);
  return link < gpu.links.size() ? &gpu.links[link] : nullptr;
}
int answer(char* text, size_t bytes, const std::string& value) {
  std::snprintf(text, bytes, "%s", value.c_str());
  return kNvmlSuccess;
}

void addPorts(const std::vector<NicDescription>& nics) {
  for (const NicDescription& nic : nics)
    for (const NetDescription& net : nic.nets) {
      auto& devices = fakeMachine().rdma;
      const auto number = static_cast<size_t>(net.port.value_or(1));
      devices.push_back({net.name, net.guid.value_or(0), net.maxConnections.value_or(0), true, {}});
      for (size_t port = 1; port < number; ++port) devices.back().ports.push_back({1, 2, 64, 2, {}});  // down
      devices.back().ports.push_back({});
    }
}

void addDevices(const std::vector<PciDescription>& devices) {
  for (const PciDescription& pci : devices) {
    if (pci.gpu) {
      FakeGpu& gpu = fakeMachine().gpus.emplace_back();
      gpu.busId = "0000" + pci.busId.text();
      gpu.major = *pci.gpu->sm / 10;
      gpu.minor = *pci.gpu->sm % 10;
      for (const NvlinkDescription& link : pci.gpu->nvlinks)
        gpu.links.insert(gpu.links.end(), static_cast<size_t>(*link.count), {"0000" + link.target.text()});
    }
    addPorts(pci.nics);
    addDevices(pci.children);
  }
}

}  // namespace

FakeMachine& fakeMachine() {
  static FakeMachine machine;
  return machine;
}

void pretend(const SystemDescription& system) {
  fakeMachine() = {};
  for (const CpuDescription& cpu : system.cpus) addDevices(cpu.pci);
}

NvmlApi fakeNvml() {
  NvmlApi nvml;
  nvml.init = [] {
    if (fakeMachine().nvmlInit == kNvmlSuccess) ++fakeMachine().nvmlStarted;
    return fakeMachine().nvmlInit;
  };
  nvml.shutdown = [] {
    --fakeMachine().nvmlStarted;
    return kNvmlSuccess;
  };
  nvml.errorText = [](int error) { return error == 9 ? "Driver Not Loaded" : "Unknown Error"; };
  nvml.deviceCount = [](uint32_t* count) {
    *count = static_cast<uint32_t>(fakeMachine().gpus.size());
    return kNvmlSuccess;
  };
  nvml.deviceByIndex = [](uint32_t index, NvmlApi::Device* device) {
    *device = &fakeMachine().gpus.at(index);
    return kNvmlSuccess;
  };
  nvml.pciInfo = [](NvmlApi::Device device, NvmlPciInfo* pci) {
    return answer(pci->busId, sizeof pci->busId, gpuOf(device).busId);
  };
  nvml.name = [](NvmlApi::Device, char* text, uint32_t bytes) { return answer(text, bytes, "Fake GPU"); };
  nvml.uuid = [](NvmlApi::Device device, char* text, uint32_t bytes) {
    return answer(text, bytes, "GPU-" + gpuOf(device).busId);
  };
  nvml.computeCapability = [](NvmlApi::Device device, int* major, int* minor) {
    *major = gpuOf(device).major;
    *minor = gpuOf(device).minor;
    return kNvmlSuccess;
  };
  nvml.pciGeneration = [](NvmlApi::Device, uint32_t* value) {
    *value = 5;
    return kNvmlSuccess;
  };
  nvml.pciWidth = [](NvmlApi::Device, uint32_t* value) {
    *value = 16;
    return kNvmlSuccess;
  };
  nvml.nvlinkState = [](NvmlApi::Device device, uint32_t link, int* isActive) {
    const FakeGpu::Link* found = linkOf(device, link);
    if (found == nullptr) return kNvmlInvalidArgument;
    *isActive = found->active ? 1 : 0;
    return kNvmlSuccess;
  };
  nvml.nvlinkVersion = [](NvmlApi::Device, uint32_t, uint32_t* version) {
    *version = 4;
    return kNvmlSuccess;
  };
  nvml.nvlinkCapability = [](NvmlApi::Device device, uint32_t link, uint32_t capability, uint32_t* value) {
    if (capability != kNvmlCapP2p) return kNvmlNotSupported;
    *value = linkOf(device, link)->p2p ? 1 : 0;
    return kNvmlSuccess;
  };
  nvml.nvlinkRemotePci = [](NvmlApi::Device device, uint32_t link, NvmlPciInfo* pci) {
    return answer(pci->busId, sizeof pci->busId, linkOf(device, link)->target);
  };
  nvml.nvlinkRemoteType = [](NvmlApi::Device device, uint32_t link, int* type) {
    *type = linkOf(device, link)->type;
    return *type < 0 ? kNvmlNotSupported : kNvmlSuccess;
  };
  nvml.p2pStatus = [](NvmlApi::Device, NvmlApi::Device, int index, int* status) {
    *status = index == 3 ? 1 : 0;  // no atomics
    return kNvmlSuccess;
  };
  nvml.fabricInfo = [](NvmlApi::Device device, NvmlFabricInfo* info) {
    if (info->version != kNvmlFabricVersion) return kNvmlInvalidArgument;
    info->state = kNvmlFabricComplete;
    std::memset(info->cluster, gpuOf(device).cluster, sizeof info->cluster);
    info->clique = gpuOf(device).clique;
    return kNvmlSuccess;
  };
  nvml.fieldValues = [](NvmlApi::Device device, int count, NvmlFieldValue* values) {
    const auto& links = gpuOf(device).c2c;
    for (int i = 0; i < count; ++i) {
      NvmlFieldValue& value = values[i];
      value.result = kNvmlSuccess;
      if (value.fieldId == kNvmlC2cCount) {
        value.number = static_cast<uint32_t>(links.size());
      } else if (value.fieldId == kNvmlC2cStatus) {
        value.number = links.at(value.scopeId) > 0 ? 1 : 0;
      } else if (value.fieldId == kNvmlC2cBandwidth) {
        value.number = links.at(value.scopeId);
      } else {
        value.result = kNvmlNotSupported;
      }
    }
    return kNvmlSuccess;
  };
  return nvml;
}

VerbsApi fakeVerbs() {
  static const auto kDevice = [](VerbsApi::Device device) -> const FakeRdmaDevice& {
    return *static_cast<const FakeRdmaDevice*>(device);
  };
  VerbsApi verbs;
  verbs.deviceList = [](int* count) {
    *count = static_cast<int>(fakeMachine().rdma.size());
    auto* list = new VerbsApi::Device[fakeMachine().rdma.size() + 1]{};
    for (size_t i = 0; i < fakeMachine().rdma.size(); ++i) list[i] = &fakeMachine().rdma[i];
    return list;
  };
  verbs.freeDeviceList = [](VerbsApi::Device* list) { delete[] list; };
  verbs.deviceName = [](VerbsApi::Device device) { return kDevice(device).name.c_str(); };
  verbs.deviceGuid = [](VerbsApi::Device device) { return htobe64(kDevice(device).guid + 1); };
  verbs.open = [](VerbsApi::Device device) -> VerbsApi::Context {
    if (!kDevice(device).opens) {
      errno = EACCES;
      return nullptr;
    }
    ++fakeMachine().rdmaOpen;
    return device;
  };
  verbs.close = [](VerbsApi::Context) {
    --fakeMachine().rdmaOpen;
    return 0;
  };
  verbs.queryDevice = [](VerbsApi::Context context, VerbsDeviceAttributes* attributes) {
    attributes->systemImageGuid = htobe64(kDevice(context).guid);
    attributes->maxQueuePairs = kDevice(context).maxQueuePairs;
    return 0;
  };
  verbs.queryPort = [](VerbsApi::Context context, uint8_t port, VerbsPortAttributes* attributes) {
    const auto& ports = kDevice(context).ports;
    if (port < 1 || port > ports.size()) return EINVAL;
    const FakePort& found = ports[port - 1u];
    attributes->state = found.state;
    attributes->activeWidth = found.width;
    attributes->activeSpeed = found.speed;
    attributes->linkLayer = found.layer;
    attributes->gidTableLength = static_cast<int32_t>(found.gids.size());
    return 0;
  };
  verbs.queryGid = [](VerbsApi::Context context, uint8_t port, int index, uint8_t gid[16]) {
    gid[0] = kDevice(context).ports.at(port - 1u).gids.at(static_cast<size_t>(index));
    return 0;
  };
  return verbs;
}

CudaDriverApi fakeCuda() {
  CudaDriverApi cuda;
  cuda.init = [](unsigned) { return 0; };
  cuda.deviceCount = [](int* count) {
    *count = static_cast<int>(fakeMachine().gpus.size());
    return 0;
  };
  cuda.deviceByIndex = [](int* device, int index) {
    *device = index + 100;  // a handle, no number
    return 0;
  };
  cuda.busId = [](char* text, int bytes, int device) {
    answer(text, static_cast<size_t>(bytes), fakeMachine().gpus.at(static_cast<size_t>(device) - 100).busId);
    return 0;
  };
  cuda.attribute = [](int* value, int attribute, int device) {
    const FakeGpu& gpu = fakeMachine().gpus.at(static_cast<size_t>(device) - 100);
    *value = attribute == kCudaMajor ? gpu.major : attribute == kCudaMinor ? gpu.minor : 1;
    return attribute == kCudaMajor || attribute == kCudaMinor || attribute == kCudaGpuDirectRdma ? 0 : 1;
  };
  return cuda;
}

MachineLibraries fakeLibraries() {
  MachineLibraries libraries;
  libraries.nvml = [] { return Result<NvmlApi>(fakeNvml()); };
  libraries.verbs = [] { return Result<VerbsApi>(fakeVerbs()); };
  libraries.cuda = [] { return Result<CudaDriverApi>(fakeCuda()); };
  return libraries;
}

}  // namespace tutti::test
