#include "hostrt/device.h"

#include <pthread.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

#include "hostrt/kernel_workers.h"
#include "hostrt/log.h"
#include "hostrt/topology_file.h"
#include "hostrt/workers.h"

namespace tutti::hostrt {
namespace {

constexpr int kMaxDevices = 1024;
thread_local int threadDevice = 0;

bool parseNumber(std::string_view text, int* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

constexpr int kPciDomain = 0x7e00;

bool kernelsRunOnVirtualGpus() {
  const char* text = std::getenv("TUTTI_HOST_KERNELS");
  int number = 0;
  return text && parseNumber(text, &number) && number != 0;
}

/// What the devices stand for. Empty: for nothing, they are this machine's.
const std::vector<FileGpu>& fileGpus() {
  static const auto* gpus = [] {
    auto* found = new std::vector<FileGpu>;
    const char* path = std::getenv("NCCL_TOPO_FILE");
    if (!path || !*path || !kernelsRunOnVirtualGpus()) return found;
    FileGpus file = readTopologyFile(path);
    if (!file.error.empty())
      warn("NCCL_TOPO_FILE: {}; virtual GPUs are not made after it", file.error);
    else if (file.gpus.size() > static_cast<size_t>(kMaxDevices))
      warn("NCCL_TOPO_FILE: {}: more than {} GPUs; virtual GPUs are not made after it", path, kMaxDevices);
    else
      *found = std::move(file.gpus);
    return found;
  }();
  return *gpus;
}

int readConfiguredSlots() {
  const auto ofFile = static_cast<int>(fileGpus().size());
  const int standard = ofFile > 0 ? ofFile : 8;
  const char* text = std::getenv("TUTTI_HOST_DEVICES");
  if (!text || !*text) return standard;
  int count = 0;
  if (!parseNumber(text, &count) || count < 0 || count > kMaxDevices) {
    warn("TUTTI_HOST_DEVICES={}: expected a number from 0 to {}; no device is available", text, kMaxDevices);
    return 0;
  }
  if (ofFile == 0 || count <= ofFile) return count;
  warn("TUTTI_HOST_DEVICES={}: NCCL_TOPO_FILE describes a machine with {} GPUs; there are so many devices",
       text, ofFile);
  return ofFile;
}

/// As CUDA reads it: the list ends at the first entry that is not a device. A list without any (job
/// schedulers write "NoDevFiles" or nothing to keep programs off GPUs) does not concern host devices.
std::vector<int> visibleSlots(int slots) {
  std::vector<int> visible;
  if (const char* text = std::getenv("CUDA_VISIBLE_DEVICES")) {
    std::string_view rest = text;
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      int slot = -1;
      if (!parseNumber(rest.substr(0, comma), &slot) || slot < 0 || slot >= slots) break;
      if (std::find(visible.begin(), visible.end(), slot) != visible.end()) break;
      visible.push_back(slot);
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  if (visible.empty())
    for (int slot = 0; slot < slots; ++slot) visible.push_back(slot);
  return visible;
}

/// The number in a file that holds nothing else ("max" counts as none); 0 when there is none.
size_t readNumber(const char* path) {
  std::ifstream file(path);
  size_t value = 0;
  return file >> value ? value : 0;
}

size_t meminfo(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  size_t kilobytes = 0;
  std::string unit;
  while (file >> name >> kilobytes && std::getline(file, unit))
    if (name == key) return kilobytes * 1024;
  return 0;
}

}  // namespace

Device::Device(int number, int physicalSlot)
    : index(number), slot(physicalSlot), streams{&legacy}, legacy(*this, Stream::Kind::legacy) {}

void Device::pending(std::vector<Marker>& markers) {
  const std::lock_guard lock(mutex);
  for (Stream* stream : streams)
    if (stream->isBusy()) markers.push_back({stream, stream->submitted_});
}

void Device::forgetWork() {
  new (&mutex) std::mutex;  // a thread of the parent may have held it
  busyBlocking = 0;
  legacy.forgetWork();
}

const std::vector<std::unique_ptr<Device>>& devices() {
  static std::vector<std::unique_ptr<Device>>* list = nullptr;
  static const auto* all = [] {
    list = new std::vector<std::unique_ptr<Device>>;
    const std::vector<int> slots = visibleSlots(configuredSlots());
    for (const int slot : slots) {
      list->push_back(std::make_unique<Device>(static_cast<int>(list->size()), slot));
      list->back()->peerAccess.resize(slots.size());
    }
    ::pthread_atfork(nullptr, nullptr, [] {
      forgetWorkers();
      forgetBlockWorkers();
      for (const auto& device : *list) device->forgetWork();
    });
    return list;
  }();
  return *all;
}

int configuredSlots() {
  static const int count = readConfiguredSlots();
  return count;
}

int currentDevice() { return threadDevice; }
void setCurrentDevice(int device) { threadDevice = device; }

Device* findDevice(int device) {
  const auto& all = devices();
  return device >= 0 && static_cast<size_t>(device) < all.size() ? all[static_cast<size_t>(device)].get()
                                                                 : nullptr;
}

Device* currentDeviceOrNull() { return findDevice(threadDevice); }

cudaError_t faultOfCurrentDevice() {
  const Device* device = currentDeviceOrNull();
  return device ? device->fault.load(std::memory_order_acquire) : cudaSuccess;
}

const FileGpu* fileGpuOf(const Device& device) {
  const auto slot = static_cast<size_t>(device.slot);
  return slot < fileGpus().size() ? &fileGpus()[slot] : nullptr;
}

PciAddress pciAddress(const Device& device) {
  if (const FileGpu* gpu = fileGpuOf(device)) return {gpu->domain, gpu->bus, gpu->device, gpu->function};
  return {static_cast<uint32_t>(kPciDomain + device.slot / 256), static_cast<uint32_t>(device.slot % 256), 0,
          0};
}

std::string pciBusId(const Device& device) {
  const PciAddress at = pciAddress(device);
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", at.domain, at.bus, at.device, at.function);
}

DeviceProperties propertiesOf(const Device& device) {
  // Programs ask for a capability to decide whether half, bfloat16 and 8-bit floats may be used: all may.
  constexpr int kStandardSm = 90;
  const FileGpu* gpu = fileGpuOf(device);
  const int sm = gpu && gpu->sm > 0 ? gpu->sm : kStandardSm;
  return {gpu ? nameOf(*gpu) : "Tutti host device", pciBusId(device), sm / 10, sm % 10};
}

bool reaches(const Device& device, const Device& peer) { return &device != &peer; }

bool areClose(const Device& device, const Device& peer) {
  const FileGpu* from = fileGpuOf(device);
  const FileGpu* to = fileGpuOf(peer);
  return !from || !to || areLinkedByNvlink(*from, *to);
}

MachineMemory machineMemory() {
  MachineMemory memory{meminfo("MemTotal:"), meminfo("MemAvailable:")};
  const auto narrow = [&](size_t limit, size_t used) {
    if (limit == 0 || limit >= memory.total) return;
    memory.total = limit;
    memory.available = std::min(memory.available, limit > used ? limit - used : 0);
  };
  narrow(readNumber("/sys/fs/cgroup/memory.max"), readNumber("/sys/fs/cgroup/memory.current"));
  narrow(readNumber("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
         readNumber("/sys/fs/cgroup/memory/memory.usage_in_bytes"));
  return memory;
}

}  // namespace tutti::hostrt
