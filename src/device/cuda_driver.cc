#include "device/cuda_driver.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/datatype.h"
#include "device/cuda_api.h"
#include "device/protocol_name.h"

namespace tutti {
namespace {

constexpr size_t kProtocols = 3;
/// Of the pinned memory that copies go through. Programs and argument arrays are a few KiB.
constexpr size_t kStagingBytes = size_t{256} << 10;
/// Up to here a block may use dynamic shared memory without asking for it.
constexpr uint32_t kSharedWithoutAsking = 48u << 10;

bool isDefaultStreamOfDevice(DeviceStream stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

/// A device, once it is used.
struct Gpu {
  cuda::Device handle = 0;
  std::mutex mutex;  // guards all but `context` and `functions`, which stay as they are once they are set
  std::atomic<cuda::Context> context{nullptr};  // the primary one, which the CUDA runtime uses too
  std::atomic<bool> isLoaded{false};
  cuda::Module module = nullptr;
  std::array<cuda::Function, size_t{ncclNumTypes} * kProtocols> functions{};
  cuda::Stream copies = nullptr;  // private, and waits for no other
  std::byte* staging = nullptr;
};

class CudaDriver : public Driver {
 public:
  CudaDriver(const cuda::Api& api, const GpuKernels& kernels, int count)
      : api_(api), kernels_(kernels), gpus_(static_cast<size_t>(count)) {}

  ~CudaDriver() override;

  Status start() {
    for (size_t i = 0; i < gpus_.size(); ++i)
      TUTTI_TRY(check(api_.cuDeviceGet(&gpus_[i].handle, static_cast<int>(i)), "cuDeviceGet", "GPU {}", i));
    return Status::ok();
  }

  bool isVirtual() const override { return false; }
  Result<int> deviceCount() override { return static_cast<int>(gpus_.size()); }
  Result<int> currentDevice() override;
  Result<DeviceFacts> facts(int device) override;
  Status loadKernels(int device) override;
  Result<uint32_t> residentBlocks(int device, ncclDataType_t type, device::Protocol protocol,
                                  uint32_t threads, uint32_t sharedBytes) override;
  Status launch(int device, DeviceStream stream, const KernelLaunch& launch) override;
  Result<std::byte*> allocate(int device, size_t bytes) override;
  Status free(int device, std::byte* memory) override;
  Result<std::byte*> allocateHost(size_t bytes) override;
  Status freeHost(std::byte* memory) override;
  Status copyToDevice(int device, void* destination, const void* source, size_t bytes) override;
  Status copyFromDevice(int device, void* destination, const void* source, size_t bytes) override;
  PointerFacts pointerFacts(const void* pointer) override;
  Result<bool> canAccessPeer(int device, int peer) override;
  Status enablePeerAccess(int device, int peer) override;
  Result<int> streamDevice(DeviceStream stream, int current) override;
  Result<uint64_t> captureOf(int device, DeviceStream stream) override;
  Result<bool> isIdle(int device, DeviceStream stream) override;
  Status synchronize(int device, DeviceStream stream) override;
  Result<DeviceEvent> createEvent(int device) override;
  Status destroyEvent(int device, DeviceEvent event) override;
  Status recordEvent(int device, DeviceEvent event, DeviceStream stream, bool inGraph) override;
  Status waitEvent(int device, DeviceStream stream, DeviceEvent event, bool inGraph) override;
  Result<bool> isDone(int device, DeviceEvent event) override;
  std::string kernelReport() override { return ""; }

 private:
  /// The device's primary context is current while this exists, and the calling thread's calls disturb no
  /// capture: while one goes on, allocations and queries of a thread whose mode is not relaxed are errors
  /// that invalidate it.
  class Scope {
   public:
    Scope() = default;
    Scope(Scope&& other) noexcept
        : api_(std::exchange(other.api_, nullptr)), pushed_(other.pushed_), mode_(other.mode_) {}
    Scope& operator=(Scope&&) = delete;
    ~Scope() {
      if (api_ == nullptr) return;
      cuda::Context context = nullptr;
      if (pushed_) api_->cuCtxPopCurrent(&context);
      api_->cuThreadExchangeStreamCaptureMode(&mode_);
    }
    /// Without a context when that is null.
    static Result<Scope> enter(const cuda::Api& api, cuda::Context context) {
      Scope scope;
      const cuda::Error exchanged = api.cuThreadExchangeStreamCaptureMode(&scope.mode_);
      if (exchanged != 0)
        return Status(ncclUnhandledCudaError,
                      fmt::format("cuThreadExchangeStreamCaptureMode: {}", api.text(exchanged)));
      scope.api_ = &api;
      if (context == nullptr) return scope;
      if (const cuda::Error error = api.cuCtxPushCurrent(context); error != 0)
        return Status(ncclUnhandledCudaError, fmt::format("cuCtxPushCurrent: {}", api.text(error)));
      scope.pushed_ = true;
      return scope;
    }

   private:
    const cuda::Api* api_ = nullptr;
    bool pushed_ = false;
    int mode_ = cuda::kRelaxed;  // the thread's own while the scope exists
  };

  template <typename... Args>
  Status check(cuda::Error error, const char* function, fmt::format_string<Args...> format,
               Args&&... args) const {
    if (error == 0) return Status::ok();
    return {ncclUnhandledCudaError,
            fmt::format("{}: {}: {}", fmt::format(format, std::forward<Args>(args)...), function,
                        api_.text(error))};
  }

  Result<Gpu*> gpu(int device) {
    if (device >= 0 && static_cast<size_t>(device) < gpus_.size()) return &gpus_[static_cast<size_t>(device)];
    return invalidArgument("there is no GPU {}: the process sees {}", device, gpus_.size());
  }
  /// With its primary context, which is made on first use and kept.
  Result<Gpu*> usable(int device);
  Result<Scope> enter(int device);
  /// The stream and memory for copies. With the GPU's mutex held, and its context current.
  Status prepareCopies(int device, Gpu& gpu);
  Status loadFunctions(int device, Gpu& gpu);
  Result<cuda::Function> functionOf(int device, ncclDataType_t type, device::Protocol protocol);
  Result<int> deviceOf(cuda::Context context);

  const cuda::Api api_;
  const GpuKernels kernels_;
  std::vector<Gpu> gpus_;
};

// ---- devices
// -------------------------------------------------------------------------------------------------------

CudaDriver::~CudaDriver() {
  for (Gpu& gpu : gpus_) {
    if (gpu.context == nullptr) continue;
    if (const auto scope = Scope::enter(api_, gpu.context); scope.isOk()) {
      if (gpu.staging != nullptr) api_.cuMemFreeHost(gpu.staging);
      if (gpu.copies != nullptr) api_.cuStreamDestroy(gpu.copies);
      if (gpu.module != nullptr) api_.cuModuleUnload(gpu.module);
    }
    api_.cuDevicePrimaryCtxRelease(gpu.handle);
  }
}

Result<Gpu*> CudaDriver::usable(int device) {
  TUTTI_ASSIGN(Gpu * found, gpu(device));
  if (found->context.load(std::memory_order_acquire) != nullptr) return found;
  const std::lock_guard lock(found->mutex);
  if (found->context.load(std::memory_order_relaxed) != nullptr) return found;
  TUTTI_ASSIGN(const Scope scope, Scope::enter(api_, nullptr));
  cuda::Context context = nullptr;
  TUTTI_TRY(check(api_.cuDevicePrimaryCtxRetain(&context, found->handle), "cuDevicePrimaryCtxRetain",
                  "start GPU {}", device));
  found->context.store(context, std::memory_order_release);
  return found;
}

Result<CudaDriver::Scope> CudaDriver::enter(int device) {
  TUTTI_ASSIGN(Gpu * found, usable(device));
  return Scope::enter(api_, found->context.load(std::memory_order_relaxed));
}

Result<int> CudaDriver::deviceOf(cuda::Context context) {
  TUTTI_ASSIGN(const Scope scope, Scope::enter(api_, context));
  cuda::Device handle = 0;
  TUTTI_TRY(check(api_.cuCtxGetDevice(&handle), "cuCtxGetDevice", "the device of a context"));
  for (size_t i = 0; i < gpus_.size(); ++i)
    if (gpus_[i].handle == handle) return static_cast<int>(i);
  return internalError("cuCtxGetDevice: a device {} that cuDeviceGet did not give", handle);
}

Result<int> CudaDriver::currentDevice() {
  cuda::Context context = nullptr;
  TUTTI_TRY(check(api_.cuCtxGetCurrent(&context), "cuCtxGetCurrent", "the current device"));
  // The CUDA runtime has not been asked to choose one yet.
  if (context == nullptr) return 0;
  return deviceOf(context);
}

Result<DeviceFacts> CudaDriver::facts(int device) {
  TUTTI_ASSIGN(const Gpu* found, gpu(device));
  DeviceFacts facts;
  std::array<char, 256> text{};
  const auto bytes = static_cast<int>(text.size()) - 1;
  TUTTI_TRY(check(api_.cuDeviceGetName(text.data(), bytes, found->handle), "cuDeviceGetName",
                  "the name of GPU {}", device));
  facts.name = text.data();
  TUTTI_TRY(check(api_.cuDeviceGetPCIBusId(text.data(), bytes, found->handle), "cuDeviceGetPCIBusId",
                  "the PCI address of GPU {}", device));
  facts.busId = text.data();
  std::ranges::transform(facts.busId, facts.busId.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::pair<int, int*> attributes[] = {{cuda::kMajor, &facts.major},
                                             {cuda::kMinor, &facts.minor},
                                             {cuda::kMultiprocessors, &facts.multiprocessors}};
  for (const auto& [attribute, value] : attributes)
    TUTTI_TRY(check(api_.cuDeviceGetAttribute(value, attribute, found->handle), "cuDeviceGetAttribute",
                    "properties of GPU {}", device));
  return facts;
}

Result<bool> CudaDriver::canAccessPeer(int device, int peer) {
  if (device == peer) return true;
  TUTTI_ASSIGN(const Gpu* from, gpu(device));
  TUTTI_ASSIGN(const Gpu* to, gpu(peer));
  int can = 0;
  TUTTI_TRY(check(api_.cuDeviceCanAccessPeer(&can, from->handle, to->handle), "cuDeviceCanAccessPeer",
                  "whether GPU {} reaches GPU {}", device, peer));
  return can != 0;
}

Status CudaDriver::enablePeerAccess(int device, int peer) {
  if (device == peer) return Status::ok();
  TUTTI_ASSIGN(const Gpu* to, usable(peer));
  TUTTI_ASSIGN(const Scope scope, enter(device));
  const cuda::Error error = api_.cuCtxEnablePeerAccess(to->context.load(), 0);
  if (error == cuda::kPeerAccessAlreadyEnabled) return Status::ok();
  return check(error, "cuCtxEnablePeerAccess", "let GPU {} use memory of GPU {}", device, peer);
}

// ---- kernels
// -------------------------------------------------------------------------------------------------------

Status CudaDriver::loadKernels(int device) {
  TUTTI_ASSIGN(Gpu * found, usable(device));
  if (found->isLoaded.load(std::memory_order_acquire)) return Status::ok();
  TUTTI_ASSIGN(const Scope scope, enter(device));
  const std::lock_guard lock(found->mutex);
  if (found->isLoaded.load(std::memory_order_relaxed)) return Status::ok();
  TUTTI_TRY(loadFunctions(device, *found));
  found->isLoaded.store(true, std::memory_order_release);
  return Status::ok();
}

/// Since CUDA 12.2 drivers load a kernel only when it is launched first, unless CUDA_MODULE_LOADING=EAGER.
/// That may wait for kernels that run, and these for the one that is loaded: a deadlock. So each is loaded
/// here: cuFuncLoad does nothing else, and drivers before 12.4, which lack it, must load a kernel to tell its
/// registers.
Status CudaDriver::loadFunctions(int device, Gpu& gpu) {
  const cuda::Error loaded = api_.cuModuleLoadData(&gpu.module, kernels_.image.data());
  if (loaded == cuda::kNoBinaryForGpu) {
    TUTTI_ASSIGN(const DeviceFacts of, facts(device));
    return {
        ncclUnhandledCudaError,
        fmt::format("GPU {} ({}, compute capability {}.{}): this library was built without kernels for it: "
                    "cuModuleLoadData: {}",
                    device, of.name, of.major, of.minor, api_.text(loaded))};
  }
  TUTTI_TRY(check(loaded, "cuModuleLoadData", "load kernels on GPU {}", device));
  int mostShared = 0;
  TUTTI_TRY(check(api_.cuDeviceGetAttribute(&mostShared, cuda::kSharedOptin, gpu.handle),
                  "cuDeviceGetAttribute", "shared memory of GPU {}", device));
  mostShared = std::min(mostShared, static_cast<int>(kernels_.mostSharedBytes));
  for (size_t i = 0; i < gpu.functions.size(); ++i) {
    const std::string name = kernels_.nameOf(static_cast<ncclDataType_t>(i / kProtocols),
                                             static_cast<device::Protocol>(i % kProtocols));
    cuda::Function& function = gpu.functions[i];
    TUTTI_TRY(check(api_.cuModuleGetFunction(&function, gpu.module, name.c_str()), "cuModuleGetFunction",
                    "kernel {} on GPU {}", name, device));
    int registers = 0;
    if (api_.cuFuncLoad != nullptr)
      TUTTI_TRY(check(api_.cuFuncLoad(function), "cuFuncLoad", "load kernel {} on GPU {}", name, device));
    else
      TUTTI_TRY(check(api_.cuFuncGetAttribute(&registers, cuda::kRegisters, function), "cuFuncGetAttribute",
                      "load kernel {} on GPU {}", name, device));
    if (static_cast<uint32_t>(mostShared) > kSharedWithoutAsking)
      TUTTI_TRY(check(api_.cuFuncSetAttribute(function, cuda::kMostDynamicShared, mostShared),
                      "cuFuncSetAttribute", "shared memory of kernel {} on GPU {}", name, device));
  }
  return Status::ok();
}

Result<cuda::Function> CudaDriver::functionOf(int device, ncclDataType_t type, device::Protocol protocol) {
  TUTTI_ASSIGN(const Gpu* found, gpu(device));
  if (!found->isLoaded.load(std::memory_order_acquire))
    return internalError("kernels were not loaded on GPU {}", device);
  if (!isValid(type)) return internalError("no kernel for data type {}", static_cast<int>(type));
  return found->functions[static_cast<size_t>(type) * kProtocols + static_cast<size_t>(protocol)];
}

Result<uint32_t> CudaDriver::residentBlocks(int device, ncclDataType_t type, device::Protocol protocol,
                                            uint32_t threads, uint32_t sharedBytes) {
  TUTTI_ASSIGN(cuda::Function function, functionOf(device, type, protocol));
  TUTTI_ASSIGN(const DeviceFacts of, facts(device));
  TUTTI_ASSIGN(const Scope scope, enter(device));
  int blocks = 0;
  TUTTI_TRY(check(api_.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function,
                                                                   static_cast<int>(threads), sharedBytes),
                  "cuOccupancyMaxActiveBlocksPerMultiprocessor",
                  "blocks of {} threads that GPU {} runs at a time", threads, device));
  return static_cast<uint32_t>(std::max(blocks, 0)) * static_cast<uint32_t>(of.multiprocessors);
}

Status CudaDriver::launch(int device, DeviceStream stream, const KernelLaunch& launch) {
  TUTTI_ASSIGN(cuda::Function function, functionOf(device, launch.type, launch.protocol));
  TUTTI_ASSIGN(const Scope scope, enter(device));
  void* arguments[] = {const_cast<device::LaunchArguments*>(launch.arguments)};
  return check(api_.cuLaunchKernel(function, launch.blocks, 1, 1, launch.threads, 1, 1, launch.sharedBytes,
                                   stream, arguments, nullptr),
               "cuLaunchKernel", "launch of the {} kernel for {} on GPU {} ({} blocks of {} threads)",
               nameOf(launch.protocol), nameOf(launch.type), device, launch.blocks, launch.threads);
}

// ---- memory
// --------------------------------------------------------------------------------------------------------

Status CudaDriver::prepareCopies(int device, Gpu& gpu) {
  if (gpu.copies == nullptr)
    TUTTI_TRY(check(api_.cuStreamCreate(&gpu.copies, cuda::kNonBlocking), "cuStreamCreate",
                    "a stream for copies on GPU {}", device));
  if (gpu.staging != nullptr) return Status::ok();
  void* memory = nullptr;
  TUTTI_TRY(check(api_.cuMemHostAlloc(&memory, kStagingBytes, cuda::kPortable | cuda::kMapped),
                  "cuMemHostAlloc", "{} bytes of pinned memory for copies on GPU {}", kStagingBytes, device));
  gpu.staging = static_cast<std::byte*>(memory);
  return Status::ok();
}

Result<std::byte*> CudaDriver::allocate(int device, size_t bytes) {
  if (bytes == 0) return nullptr;
  TUTTI_ASSIGN(Gpu * found, usable(device));
  TUTTI_ASSIGN(const Scope scope, enter(device));
  cuda::Address memory = 0;
  TUTTI_TRY(check(api_.cuMemAlloc(&memory, bytes), "cuMemAlloc", "{} bytes on GPU {}", bytes, device));
  const auto zero = [&]() -> Status {
    const std::lock_guard lock(found->mutex);
    TUTTI_TRY(prepareCopies(device, *found));
    TUTTI_TRY(check(api_.cuMemsetD8Async(memory, 0, bytes, found->copies), "cuMemsetD8Async",
                    "zero {} bytes on GPU {}", bytes, device));
    return check(api_.cuStreamSynchronize(found->copies), "cuStreamSynchronize", "zero {} bytes on GPU {}",
                 bytes, device);
  };
  if (const Status zeroed = zero(); !zeroed.isOk()) {
    api_.cuMemFree(memory);
    return zeroed;
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a CUdeviceptr is an address
  return reinterpret_cast<std::byte*>(memory);
}

Status CudaDriver::free(int device, std::byte* memory) {
  if (memory == nullptr) return Status::ok();
  TUTTI_ASSIGN(const Scope scope, enter(device));
  return check(api_.cuMemFree(reinterpret_cast<cuda::Address>(memory)), "cuMemFree", "free memory of GPU {}",
               device);
}

Result<std::byte*> CudaDriver::allocateHost(size_t bytes) {
  if (bytes == 0) return nullptr;
  // Portable: any device's context will do, the calling thread's own rather than one that nobody uses yet.
  TUTTI_ASSIGN(const int device, currentDevice());
  TUTTI_ASSIGN(const Scope scope, enter(device));
  void* memory = nullptr;
  TUTTI_TRY(check(api_.cuMemHostAlloc(&memory, bytes, cuda::kPortable | cuda::kMapped), "cuMemHostAlloc",
                  "{} bytes of pinned memory", bytes));
  std::memset(memory, 0, bytes);
  return static_cast<std::byte*>(memory);
}

Status CudaDriver::freeHost(std::byte* memory) {
  if (memory == nullptr) return Status::ok();
  TUTTI_ASSIGN(const int device, currentDevice());
  TUTTI_ASSIGN(const Scope scope, enter(device));
  return check(api_.cuMemFreeHost(memory), "cuMemFreeHost", "free pinned memory");
}

Status CudaDriver::copyToDevice(int device, void* destination, const void* source, size_t bytes) {
  TUTTI_ASSIGN(Gpu * found, usable(device));
  TUTTI_ASSIGN(const Scope scope, enter(device));
  const std::lock_guard lock(found->mutex);
  TUTTI_TRY(prepareCopies(device, *found));
  for (size_t done = 0; done < bytes;) {
    const size_t piece = std::min(bytes - done, kStagingBytes);
    std::memcpy(found->staging, static_cast<const std::byte*>(source) + done, piece);
    const auto to = reinterpret_cast<cuda::Address>(destination) + done;
    TUTTI_TRY(check(api_.cuMemcpyHtoDAsync(to, found->staging, piece, found->copies), "cuMemcpyHtoDAsync",
                    "copy {} bytes to GPU {}", bytes, device));
    TUTTI_TRY(check(api_.cuStreamSynchronize(found->copies), "cuStreamSynchronize", "copy {} bytes to GPU {}",
                    bytes, device));
    done += piece;
  }
  return Status::ok();
}

Status CudaDriver::copyFromDevice(int device, void* destination, const void* source, size_t bytes) {
  TUTTI_ASSIGN(Gpu * found, usable(device));
  TUTTI_ASSIGN(const Scope scope, enter(device));
  const std::lock_guard lock(found->mutex);
  TUTTI_TRY(prepareCopies(device, *found));
  for (size_t done = 0; done < bytes;) {
    const size_t piece = std::min(bytes - done, kStagingBytes);
    const auto from = reinterpret_cast<cuda::Address>(source) + done;
    TUTTI_TRY(check(api_.cuMemcpyDtoHAsync(found->staging, from, piece, found->copies), "cuMemcpyDtoHAsync",
                    "copy {} bytes from GPU {}", bytes, device));
    TUTTI_TRY(check(api_.cuStreamSynchronize(found->copies), "cuStreamSynchronize",
                    "copy {} bytes from GPU {}", bytes, device));
    std::memcpy(static_cast<std::byte*>(destination) + done, found->staging, piece);
    done += piece;
  }
  return Status::ok();
}

PointerFacts CudaDriver::pointerFacts(const void* pointer) {
  int type = 0, managed = 0, device = -1;
  int wanted[] = {cuda::kMemoryType, cuda::kIsManaged, cuda::kDeviceOrdinal};
  void* values[] = {&type, &managed, &device};
  const auto scope = Scope::enter(api_, nullptr);
  if (!scope.isOk() ||
      api_.cuPointerGetAttributes(3, wanted, values, reinterpret_cast<cuda::Address>(pointer)) != 0)
    return {};
  if (managed != 0) return {PointerFacts::Kind::managed, device};
  if (type == cuda::kHostMemory) return {PointerFacts::Kind::host, device};
  if (type == cuda::kDeviceMemory) return {PointerFacts::Kind::device, device};
  return {};
}

// ---- streams and events
// --------------------------------------------------------------------------------------------

Result<int> CudaDriver::streamDevice(DeviceStream stream, int current) {
  if (isDefaultStreamOfDevice(stream)) return current;
  cuda::Context context = nullptr;
  TUTTI_TRY(
      check(api_.cuStreamGetCtx(stream, &context), "cuStreamGetCtx", "the device of stream {}", stream));
  return deviceOf(context);
}

Result<uint64_t> CudaDriver::captureOf(int device, DeviceStream stream) {
  TUTTI_ASSIGN(const Scope scope, enter(device));
  int state = cuda::kCaptureNone;
  uint64_t id = 0;
  TUTTI_TRY(check(api_.cuStreamGetCaptureInfo(stream, &state, &id), "cuStreamGetCaptureInfo",
                  "whether a stream of GPU {} is captured", device));
  if (state == cuda::kCaptureNone) return uint64_t{0};
  if (state == cuda::kCaptureActive) return id;
  return invalidUsage("the capture of a stream of GPU {} was invalidated", device);
}

Result<bool> CudaDriver::isIdle(int device, DeviceStream stream) {
  TUTTI_ASSIGN(const Scope scope, enter(device));
  const cuda::Error error = api_.cuStreamQuery(stream);
  if (error == cuda::kNotReady) return false;
  TUTTI_TRY(check(error, "cuStreamQuery", "whether a stream of GPU {} is idle", device));
  return true;
}

Status CudaDriver::synchronize(int device, DeviceStream stream) {
  TUTTI_ASSIGN(const Scope scope, enter(device));
  return check(api_.cuStreamSynchronize(stream), "cuStreamSynchronize", "wait for a stream of GPU {}",
               device);
}

Result<DeviceEvent> CudaDriver::createEvent(int device) {
  TUTTI_ASSIGN(const Scope scope, enter(device));
  cuda::Event event = nullptr;
  TUTTI_TRY(
      check(api_.cuEventCreate(&event, cuda::kDisableTiming), "cuEventCreate", "an event of GPU {}", device));
  return event;
}

Status CudaDriver::destroyEvent(int device, DeviceEvent event) {
  TUTTI_ASSIGN(const Scope scope, enter(device));
  return check(api_.cuEventDestroy(event), "cuEventDestroy", "an event of GPU {}", device);
}

Status CudaDriver::recordEvent(int device, DeviceEvent event, DeviceStream stream, bool inGraph) {
  TUTTI_ASSIGN(const Scope scope, enter(device));
  const unsigned flags = inGraph ? cuda::kEventExternal : 0;
  return check(api_.cuEventRecordWithFlags(event, stream, flags), "cuEventRecordWithFlags",
               "an event of GPU {}", device);
}

Status CudaDriver::waitEvent(int device, DeviceStream stream, DeviceEvent event, bool inGraph) {
  TUTTI_ASSIGN(const Scope scope, enter(device));
  return check(api_.cuStreamWaitEvent(stream, event, inGraph ? cuda::kEventExternal : 0), "cuStreamWaitEvent",
               "let a stream of GPU {} wait for an event", device);
}

Result<bool> CudaDriver::isDone(int device, DeviceEvent event) {
  TUTTI_ASSIGN(const Scope scope, enter(device));
  const cuda::Error error = api_.cuEventQuery(event);
  if (error == cuda::kNotReady) return false;
  TUTTI_TRY(check(error, "cuEventQuery", "whether an event of GPU {} is done", device));
  return true;
}

}  // namespace

Result<std::unique_ptr<Driver>> openCudaDriver(const std::string& file, const GpuKernels& kernels) {
  TUTTI_ASSIGN(const cuda::Api api, cuda::open(file, kOldestDriver));
  // Before the driver is started, which takes long.
  if (kernels.image.empty())
    return Status(ncclSystemError,
                  "this library was built without kernels for GPUs (-DTUTTI_GPU_KERNELS=ON adds them)");
  int count = 0;
  cuda::Error error = api.cuInit(0);
  if (error == 0) error = api.cuDeviceGetCount(&count);
  if (error == cuda::kNoDevice || (error == 0 && count == 0))
    return Status(ncclSystemError, fmt::format("CUDA driver {}: it finds no GPU", file));
  if (error != 0)
    return Status(ncclUnhandledCudaError,
                  fmt::format("CUDA driver {}: it does not start: {}", file, api.text(error)));
  auto driver = std::make_unique<CudaDriver>(api, kernels, count);
  TUTTI_TRY(driver->start());
  return std::unique_ptr<Driver>(std::move(driver));
}

}  // namespace tutti
