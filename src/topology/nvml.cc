#include "topology/nvml.h"

#include <fmt/format.h>

#include <array>

#include "topology/dynamic_library.h"

namespace tutti {
namespace {

constexpr uint32_t kMostLinks = 64;  // GPUs have 18; the first number that is none ends the search
constexpr uint32_t kMostGpus = 1024;
enum class Remote : int { gpu = 0, cpu = 1, nvswitch = 2 };

std::string reason(const NvmlApi& nvml, int error) {
  const char* text = nvml.errorText != nullptr ? nvml.errorText(error) : nullptr;
  return text != nullptr ? text : fmt::format("error {}", error);
}

template <size_t kBytes>
std::string textOf(const std::array<char, kBytes>& buffer) {
  return std::string(buffer.data(), ::strnlen(buffer.data(), kBytes));
}

class NvmlReader {
 public:
  NvmlReader(const NvmlApi& nvml, std::vector<std::string>* notes) : nvml_(nvml), notes_(notes) {}

  std::vector<GpuFacts> read() {
    uint32_t count = 0;
    if (const int error = nvml_.deviceCount(&count); error != kNvmlSuccess) {
      note(fmt::format("NVML does not say how many GPUs there are: {}", reason(nvml_, error)));
      return {};
    }
    for (uint32_t index = 0; index < count && index < kMostGpus; ++index) addGpu(index);
    if (nvml_.p2pStatus != nullptr) addPeers();
    return std::move(gpus_);
  }

 private:
  using Device = NvmlApi::Device;

  void note(std::string text) { notes_->push_back(std::move(text)); }

  void addGpu(uint32_t index) {
    Device device = nullptr;
    NvmlPciInfo pci{};
    int error = nvml_.deviceByIndex(index, &device);
    if (error == kNvmlSuccess) error = nvml_.pciInfo(device, &pci);
    const auto busId = busIdOf(pci);
    if (error != kNvmlSuccess || !busId) {
      note(fmt::format("NVML does not say where GPU {} is: {}", index,
                       error != kNvmlSuccess ? reason(nvml_, error) : "its address is malformed"));
      return;
    }
    GpuFacts gpu;
    gpu.busId = *busId;
    gpu.dev = static_cast<int32_t>(index);
    addIdentity(device, gpu);
    addPciLink(device, gpu);
    if (nvml_.nvlinkState != nullptr && nvml_.nvlinkRemotePci != nullptr) addNvlinks(device, gpu);
    if (nvml_.fieldValues != nullptr) addC2c(device, gpu);
    if (nvml_.fabricInfo != nullptr) addFabric(device, gpu);
    gpus_.push_back(std::move(gpu));
    devices_.push_back(device);
  }

  static std::optional<BusId> busIdOf(const NvmlPciInfo& pci) {
    return parseBusId(std::string_view(pci.busId, ::strnlen(pci.busId, sizeof pci.busId)));
  }

  void addIdentity(Device device, GpuFacts& gpu) {
    std::array<char, 96> text{};
    if (nvml_.name != nullptr && nvml_.name(device, text.data(), text.size()) == kNvmlSuccess)
      gpu.name = textOf(text);
    text = {};
    if (nvml_.uuid != nullptr && nvml_.uuid(device, text.data(), text.size()) == kNvmlSuccess)
      gpu.uuid = textOf(text);
    int major = 0, minor = 0;
    if (nvml_.computeCapability != nullptr &&
        nvml_.computeCapability(device, &major, &minor) == kNvmlSuccess && major > 0 && major < 100 &&
        minor >= 0 && minor < 10)
      gpu.sm = major * 10 + minor;
    else
      note(fmt::format("NVML does not tell the compute capability of GPU {}", gpu.busId.text()));
  }

  void addPciLink(Device device, GpuFacts& gpu) {
    uint32_t value = 0;
    if (nvml_.pciGeneration != nullptr && nvml_.pciGeneration(device, &value) == kNvmlSuccess && value > 0 &&
        value < 16)
      gpu.pciGeneration = static_cast<int32_t>(value);
    if (nvml_.pciWidth != nullptr && nvml_.pciWidth(device, &value) == kNvmlSuccess && value > 0 &&
        value <= 32)
      gpu.pciWidth = static_cast<int32_t>(value);
  }

  void addNvlinks(Device device, GpuFacts& gpu) {
    for (uint32_t link = 0; link < kMostLinks; ++link) {
      int isActive = 0;
      const int error = nvml_.nvlinkState(device, link, &isActive);
      if (error == kNvmlInvalidArgument) break;  // no such link, and none after it
      if (error != kNvmlSuccess) continue;       // not supported: this GPU, or this link, has none
      if (isActive == 0) {
        ++gpu.nvlinksDown;
        continue;
      }
      uint32_t canP2p = 1;
      if (nvml_.nvlinkCapability != nullptr &&
          (nvml_.nvlinkCapability(device, link, kNvmlCapP2p, &canP2p) != kNvmlSuccess || canP2p == 0))
        continue;
      addNvlink(device, link, gpu);
    }
  }

  void addNvlink(Device device, uint32_t link, GpuFacts& gpu) {
    NvlinkFacts facts;
    facts.link = static_cast<int32_t>(link);
    facts.description.count = 1;
    uint32_t version = 0;
    if (nvml_.nvlinkVersion != nullptr && nvml_.nvlinkVersion(device, link, &version) == kNvmlSuccess)
      facts.version = static_cast<int32_t>(version);
    int type = -1;
    if (nvml_.nvlinkRemoteType != nullptr && nvml_.nvlinkRemoteType(device, link, &type) == kNvmlSuccess) {
      if (type == static_cast<int>(Remote::nvswitch)) facts.description.targetClass = kPciClassNvswitch;
      if (type == static_cast<int>(Remote::cpu)) facts.description.targetClass = kPciClassNvlinkToCpu;
    }
    NvmlPciInfo remote{};
    const int error = nvml_.nvlinkRemotePci(device, link, &remote);
    const auto target = error == kNvmlSuccess ? busIdOf(remote) : std::nullopt;
    // A virtual machine with GPUs, but without the switches between them, is shown an address of only Fs.
    const bool isHidden = !target || *target == kHiddenBusId || target->domain > 0xffffff;
    if (isHidden && !facts.description.targetClass) facts.description.targetClass = kPciClassNvswitch;
    facts.description.target = isHidden ? kHiddenBusId : *target;
    gpu.nvlinks.push_back(facts);
  }

  void addC2c(Device device, GpuFacts& gpu) {
    NvmlFieldValue count{};
    count.fieldId = kNvmlC2cCount;
    if (nvml_.fieldValues(device, 1, &count) != kNvmlSuccess || count.result != kNvmlSuccess) return;
    C2cDescription c2c;
    int32_t active = 0;
    for (uint32_t link = 0; link < count.number && link < kMostLinks; ++link) {
      std::array<NvmlFieldValue, 2> values{};
      values[0].fieldId = kNvmlC2cStatus;
      values[1].fieldId = kNvmlC2cBandwidth;
      values[0].scopeId = values[1].scopeId = link;
      if (nvml_.fieldValues(device, 2, values.data()) != kNvmlSuccess) continue;
      if (values[0].result != kNvmlSuccess || values[0].number != 1 || values[1].result != kNvmlSuccess ||
          values[1].number > INT32_MAX)
        continue;
      c2c.bandwidth = static_cast<int32_t>(values[1].number);
      ++active;
    }
    if (active == 0) return;
    c2c.count = active;
    gpu.c2c.push_back(c2c);
  }

  void addFabric(Device device, GpuFacts& gpu) {
    NvmlFabricInfo info{};
    info.version = kNvmlFabricVersion;
    if (nvml_.fabricInfo(device, &info) != kNvmlSuccess || info.state != kNvmlFabricComplete ||
        info.status != kNvmlSuccess)
      return;
    std::string cluster;
    bool isNone = true;
    for (const uint8_t byte : info.cluster) {
      cluster += fmt::format("{:02x}", byte);
      isNone = isNone && byte == 0;
    }
    if (isNone) return;  // a host of its own
    gpu.fabricCluster = cluster;
    gpu.fabricClique = info.clique;
  }

  void addPeers() {
    constexpr int kRead = 0, kWrite = 1, kNvlink = 2, kAtomics = 3;  // NVML_P2P_CAPS_INDEX_*
    for (size_t a = 0; a < gpus_.size(); ++a)
      for (size_t b = 0; b < gpus_.size(); ++b) {
        if (a == b) continue;
        const auto can = [&](int index) {
          int status = -1;
          return nvml_.p2pStatus(devices_[a], devices_[b], index, &status) == kNvmlSuccess && status == 0;
        };
        gpus_[a].peers[gpus_[b].busId] = {can(kRead), can(kWrite), can(kNvlink), can(kAtomics)};
      }
  }

  const NvmlApi& nvml_;
  std::vector<std::string>* notes_;
  std::vector<GpuFacts> gpus_;
  std::vector<Device> devices_;
};

}  // namespace

Result<NvmlApi> openNvml(const std::string& file) {
  TUTTI_ASSIGN(const DynamicLibrary library, DynamicLibrary::open(file));
  NvmlApi nvml;
  TUTTI_TRY(library.require("nvmlInit_v2", &nvml.init));
  TUTTI_TRY(library.require("nvmlShutdown", &nvml.shutdown));
  TUTTI_TRY(library.require("nvmlDeviceGetCount_v2", &nvml.deviceCount));
  TUTTI_TRY(library.require("nvmlDeviceGetHandleByIndex_v2", &nvml.deviceByIndex));
  TUTTI_TRY(library.require("nvmlDeviceGetPciInfo_v3", &nvml.pciInfo));
  library.take("nvmlErrorString", &nvml.errorText);
  library.take("nvmlDeviceGetName", &nvml.name);
  library.take("nvmlDeviceGetUUID", &nvml.uuid);
  library.take("nvmlDeviceGetCudaComputeCapability", &nvml.computeCapability);
  library.take("nvmlDeviceGetMaxPcieLinkGeneration", &nvml.pciGeneration);
  library.take("nvmlDeviceGetMaxPcieLinkWidth", &nvml.pciWidth);
  library.take("nvmlDeviceGetNvLinkState", &nvml.nvlinkState);
  library.take("nvmlDeviceGetNvLinkVersion", &nvml.nvlinkVersion);
  library.take("nvmlDeviceGetNvLinkCapability", &nvml.nvlinkCapability);
  library.take("nvmlDeviceGetNvLinkRemotePciInfo_v2", &nvml.nvlinkRemotePci);
  library.take("nvmlDeviceGetNvLinkRemoteDeviceType", &nvml.nvlinkRemoteType);
  library.take("nvmlDeviceGetP2PStatus", &nvml.p2pStatus);
  library.take("nvmlDeviceGetGpuFabricInfoV", &nvml.fabricInfo);
  library.take("nvmlDeviceGetFieldValues", &nvml.fieldValues);
  return nvml;
}

std::vector<GpuFacts> readNvml(const NvmlApi& nvml, std::vector<std::string>* notes) {
  if (const int error = nvml.init(); error != kNvmlSuccess) {
    notes->push_back(fmt::format("NVML does not start: {}", reason(nvml, error)));
    return {};
  }
  std::vector<GpuFacts> gpus = NvmlReader(nvml, notes).read();
  nvml.shutdown();
  return gpus;
}

}  // namespace tutti
