#include "device/virtual_driver.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/datatype.h"
#include "device/protocol_name.h"

namespace tutti {
namespace {

/// The default streams, which every device has of its own: null, cudaStreamLegacy, cudaStreamPerThread.
bool isDefaultStream(DeviceStream stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

/// A device is the calling thread's current one while this exists: for functions of the table that mean the
/// default streams of that.
class Current {
 public:
  Current(const tuttiHostRuntime_v1& runtime, int device) : runtime_(runtime) {
    if (runtime_.currentDevice(&before_) != 0 || before_ == device) return;
    changed_ = runtime_.setCurrentDevice(device) == 0;
  }
  ~Current() {
    if (changed_) runtime_.setCurrentDevice(before_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const tuttiHostRuntime_v1& runtime_;
  int before_ = 0;
  bool changed_ = false;
};

std::string reason(int error) {
  switch (error) {
    case EIO:
      return "a kernel has failed on the device (stderr says which)";
    case EPERM:
      return "the stream is captured, or its capture was invalidated (NCCL_DEBUG=WARN says why)";
    case ENODEV:
      return "there is no such device";
    case ECHILD:
      return "the host runtime cannot be used in a forked child";
    default:
      return errnoText(error);
  }
}

/// Ok for 0, else "what: reason".
template <typename... Args>
Status check(int error, fmt::format_string<Args...> format, Args&&... args) {
  if (error == 0) return Status::ok();
  return {error == EPERM ? ncclInvalidUsage : ncclUnhandledCudaError,
          fmt::format(format, std::forward<Args>(args)...) + ": " + reason(error)};
}

class VirtualDriver : public Driver {
 public:
  VirtualDriver(const tuttiHostRuntime_v1& runtime, TwinOf twins) : runtime_(runtime), twins_(twins) {}

  bool isVirtual() const override { return true; }

  Result<int> deviceCount() override {
    int count = 0;
    TUTTI_TRY(check(runtime_.deviceCount(&count), "count the virtual GPUs"));
    return count;
  }

  Result<int> currentDevice() override {
    int device = 0;
    TUTTI_TRY(check(runtime_.currentDevice(&device), "ask for the current device"));
    return device;
  }

  Result<DeviceFacts> facts(int device) override {
    tuttiDeviceFacts found;
    TUTTI_TRY(check(runtime_.deviceFacts(device, &found), "properties of virtual GPU {}", device));
    return DeviceFacts{found.name, found.busId, found.major, found.minor, found.multiprocessors};
  }

  Status loadKernels(int device) override {
    TUTTI_TRY(facts(device).status());
    for (int type = 0; type < ncclNumTypes; ++type)
      for (const auto protocol : {device::Protocol::simple, device::Protocol::ll, device::Protocol::ll128})
        TUTTI_TRY(twinOf(static_cast<ncclDataType_t>(type), protocol).status());
    return Status::ok();
  }

  Result<uint32_t> residentBlocks(int device, ncclDataType_t type, device::Protocol protocol,
                                  uint32_t threads, uint32_t sharedBytes) override {
    TUTTI_ASSIGN(const shim::KernelTwin* twin, twinOf(type, protocol));
    uint32_t blocks = 0;
    TUTTI_TRY(check(runtime_.kernelResident(device, twin, threads, sharedBytes, &blocks),
                    "blocks of {} threads that virtual GPU {} runs at a time", threads, device));
    return blocks;
  }

  Status launch(int device, DeviceStream stream, const KernelLaunch& launch) override {
    TUTTI_ASSIGN(const shim::KernelTwin* twin, twinOf(launch.type, launch.protocol));
    const tuttiKernelShape shape{{launch.blocks, 1, 1}, {launch.threads, 1, 1}, launch.sharedBytes};
    void* const arguments[] = {const_cast<device::LaunchArguments*>(launch.arguments)};
    return check(runtime_.kernelLaunch(device, stream, twin, &shape, arguments),
                 "launch of the {} kernel for {} on virtual GPU {} ({} blocks of {} threads)",
                 nameOf(launch.protocol), nameOf(launch.type), device, launch.blocks, launch.threads);
  }

  Result<std::byte*> allocate(int device, size_t bytes) override {
    void* memory = nullptr;
    TUTTI_TRY(check(runtime_.memoryAllocate(device, bytes, &memory), "{} bytes of memory of virtual GPU {}",
                    bytes, device));
    return static_cast<std::byte*>(memory);
  }

  Status free(int device, std::byte* memory) override {
    return check(runtime_.memoryFree(memory), "free memory of virtual GPU {}", device);
  }

  Result<std::byte*> allocateHost(size_t bytes) override {
    void* memory = nullptr;
    TUTTI_TRY(check(runtime_.pinnedAllocate(0, bytes, &memory), "{} bytes of pinned memory", bytes));
    return static_cast<std::byte*>(memory);
  }

  Status freeHost(std::byte* memory) override {
    return check(runtime_.pinnedFree(memory), "free pinned memory");
  }

  // The devices' memory is the machine's.
  Status copyToDevice(int, void* destination, const void* source, size_t bytes) override {
    std::memcpy(destination, source, bytes);
    return Status::ok();
  }
  Status copyFromDevice(int, void* destination, const void* source, size_t bytes) override {
    std::memcpy(destination, source, bytes);
    return Status::ok();
  }

  PointerFacts pointerFacts(const void* pointer) override {
    tuttiPointerFacts found{};
    if (runtime_.pointerFacts(pointer, &found) != 0) return {};
    switch (found.kind) {
      case tuttiPointerUnknown:
        break;
      case tuttiPointerHost:
        return {PointerFacts::Kind::host, found.device};
      case tuttiPointerDevice:
        return {PointerFacts::Kind::device, found.device};
      case tuttiPointerManaged:
        return {PointerFacts::Kind::managed, found.device};
    }
    return {};
  }

  Result<bool> canAccessPeer(int device, int peer) override {
    if (device == peer) return true;
    int reaches = 0;
    TUTTI_TRY(check(runtime_.deviceReaches(device, peer, &reaches),
                    "whether virtual GPU {} reaches virtual GPU {}", device, peer));
    return reaches != 0;
  }

  Status enablePeerAccess(int device, int peer) override {
    TUTTI_ASSIGN(const bool reaches, canAccessPeer(device, peer));
    if (reaches) return Status::ok();
    return {ncclUnhandledCudaError,
            fmt::format("virtual GPU {} cannot use memory of virtual GPU {}", device, peer)};
  }

  Result<int> streamDevice(DeviceStream stream, int current) override {
    if (isDefaultStream(stream)) return current;
    int device = 0;
    TUTTI_TRY(check(runtime_.streamDevice(stream, &device), "device of stream {}", stream));
    return device;
  }

  Result<uint64_t> captureOf(int device, DeviceStream stream) override {
    const Current scope(runtime_, device);
    tuttiCaptureState state{};
    TUTTI_TRY(check(runtime_.streamCapture(stream, &state), "whether a stream of virtual GPU {} is captured",
                    device));
    if (state.invalidated != 0)
      return invalidUsage("the capture of a stream of virtual GPU {} was invalidated", device);
    return state.id;
  }

  Result<bool> isIdle(int device, DeviceStream stream) override {
    const Current scope(runtime_, device);
    const int state = runtime_.streamQuery(stream);
    if (state == EBUSY) return false;
    TUTTI_TRY(check(state, "whether a stream of virtual GPU {} is idle", device));
    return true;
  }

  Status synchronize(int device, DeviceStream stream) override {
    const Current scope(runtime_, device);
    return check(runtime_.streamSynchronize(stream), "wait for a stream of virtual GPU {}", device);
  }

  Result<DeviceEvent> createEvent(int device) override {
    void* event = nullptr;
    TUTTI_TRY(check(runtime_.eventCreate(device, &event), "create an event of virtual GPU {}", device));
    return event;
  }
  Status destroyEvent(int device, DeviceEvent event) override {
    return check(runtime_.eventDestroy(event), "destroy an event of virtual GPU {}", device);
  }
  Status recordEvent(int device, DeviceEvent event, DeviceStream stream, bool inGraph) override {
    return check(runtime_.eventRecord(device, stream, event, inGraph ? 1 : 0),
                 "record an event of virtual GPU {}", device);
  }
  Status waitEvent(int device, DeviceStream stream, DeviceEvent event, bool inGraph) override {
    return check(runtime_.eventWait(device, stream, event, inGraph ? 1 : 0),
                 "let a stream of virtual GPU {} wait for an event", device);
  }
  Result<bool> isDone(int device, DeviceEvent event) override {
    const int state = runtime_.eventQuery(event);
    if (state == EBUSY) return false;
    TUTTI_TRY(check(state, "whether an event of virtual GPU {} is done", device));
    return true;
  }

  std::string kernelReport() override {
    std::string text(runtime_.kernelReport(nullptr, 0) + 1, '\0');
    const size_t length = runtime_.kernelReport(text.data(), text.size());
    text.resize(std::min(length, text.size() - 1));  // kernels went on between the calls
    return text;
  }

 private:
  Result<const shim::KernelTwin*> twinOf(ncclDataType_t type, device::Protocol protocol) const {
    if (const shim::KernelTwin* twin = twins_(type, protocol)) return twin;
    return internalError("this library has no {} kernel for {} on virtual GPUs", nameOf(protocol),
                         nameOf(type));
  }

  const tuttiHostRuntime_v1& runtime_;
  const TwinOf twins_;
};

}  // namespace

Result<std::unique_ptr<Driver>> makeVirtualDriver(const tuttiHostRuntime_v1& runtime, TwinOf twins) {
  if (runtime.size < sizeof(tuttiHostRuntime_v1))
    return Status(
        ncclSystemError,
        fmt::format("the host runtime is of an earlier release (its table has {} bytes, {} are "
                    "needed) and cannot run the library's kernels; install both from the same release",
                    runtime.size, sizeof(tuttiHostRuntime_v1)));
  return std::unique_ptr<Driver>(std::make_unique<VirtualDriver>(runtime, twins));
}

}  // namespace tutti
