#include "device/fake_cuda/fake_cuda.h"

#include <cstdlib>
#include <cstring>

#define PUBLIC __attribute__((visibility("default")))

using namespace tutti::test;

namespace {

constexpr int kInvalidValue = 1, kInvalidContext = 201, kInvalidHandle = 400;

FakeCuda& fake() {
  static auto* one = new FakeCuda;
  return *one;
}

/// Notes the call; the error that it shall give, or 0.
int enter(const char* name) {
  fake().calls.emplace_back(name);
  const auto found = fake().errors.find(name);
  return found == fake().errors.end() ? 0 : found->second;
}
/// The same for calls that a capture forbids unless the thread is relaxed.
int enterUnsafe(const char* name) {
  ++(fake().captureMode == 2 ? fake().relaxedCalls : fake().forbiddenCalls);
  return enter(name);
}
FakeContext* current() { return fake().stack.empty() ? nullptr : fake().stack.back(); }

#define ENTER(name) \
  if (const int error = enter(name)) return error
#define ENTER_UNSAFE(name) \
  if (const int error = enterUnsafe(name)) return error
#define NEED_CONTEXT() \
  if (!current()) return kInvalidContext

int init(unsigned) { return enter("cuInit"); }
int errorName(int error, const char** text) {
  *text = error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
  return 0;
}
int errorString(int error, const char** text) {
  *text = error == 2 ? "out of memory" : "as the test wants it";
  return 0;
}
int deviceGetCount(int* count) {
  ENTER("cuDeviceGetCount");
  *count = fake().devices;
  return 0;
}
// Handles that are not the numbers.
int deviceGet(int* device, int ordinal) {
  ENTER("cuDeviceGet");
  *device = 40 + ordinal;
  return 0;
}
int deviceGetName(char* text, int bytes, int device) {
  ENTER("cuDeviceGetName");
  const std::string name = "Fake " + std::to_string(device - 40);
  std::strncpy(text, name.c_str(), static_cast<size_t>(bytes));
  return 0;
}
int deviceGetAttribute(int* value, int attribute, int) {
  ENTER("cuDeviceGetAttribute");
  const std::map<int, int> known = {{16, 132}, {75, 9}, {76, 1}, {97, fake().sharedOptin}};
  const auto found = known.find(attribute);
  if (found == known.end()) return kInvalidValue;
  *value = found->second;
  return 0;
}
int deviceGetPCIBusId(char* text, int bytes, int device) {
  ENTER("cuDeviceGetPCIBusId");
  const std::string id = "0000:1B:0" + std::to_string(device - 40) + ".0";
  std::strncpy(text, id.c_str(), static_cast<size_t>(bytes));
  return 0;
}
int deviceCanAccessPeer(int* can, int device, int peer) {
  ENTER("cuDeviceCanAccessPeer");
  *can = device != peer;
  return 0;
}
int primaryCtxRetain(void** context, int device) {
  ENTER("cuDevicePrimaryCtxRetain");
  FakeContext& one = fake().contexts[device - 40];
  one = {device - 40, true};
  *context = &one;
  return 0;
}
int primaryCtxRelease(int device) {
  ENTER("cuDevicePrimaryCtxRelease");
  fake().contexts[device - 40].isRetained = false;
  return 0;
}
int ctxPush(void* context) {
  ENTER("cuCtxPushCurrent");
  fake().stack.push_back(static_cast<FakeContext*>(context));
  return 0;
}
int ctxPop(void** context) {
  ENTER("cuCtxPopCurrent");
  NEED_CONTEXT();
  *context = fake().stack.back();
  fake().stack.pop_back();
  return 0;
}
int ctxGetCurrent(void** context) {
  ENTER("cuCtxGetCurrent");
  *context = current();
  return 0;
}
int ctxGetDevice(int* device) {
  ENTER("cuCtxGetDevice");
  NEED_CONTEXT();
  *device = 40 + current()->device;
  return 0;
}
int ctxEnablePeerAccess(void* peer, unsigned) {
  ENTER("cuCtxEnablePeerAccess");
  NEED_CONTEXT();
  return fake().peers.emplace(current()->device, static_cast<FakeContext*>(peer)->device).second ? 0 : 704;
}
int moduleLoadData(void** module, const void* image) {
  ENTER_UNSAFE("cuModuleLoadData");
  NEED_CONTEXT();
  if (std::strcmp(static_cast<const char*>(image), "image") != 0) return 200;
  *module = current();
  return 0;
}
int moduleUnload(void* module) {
  ENTER_UNSAFE("cuModuleUnload");
  return module == current() ? 0 : kInvalidContext;
}
int moduleGetFunction(void** function, void* module, const char* name) {
  ENTER("cuModuleGetFunction");
  if (module != current()) return kInvalidContext;
  FakeFunction& one = fake().functions[std::to_string(current()->device) + "/" + name];
  one.name = name;
  one.context = current();
  *function = &one;
  return 0;
}
int funcLoad(void* function) {
  ENTER("cuFuncLoad");
  static_cast<FakeFunction*>(function)->isLoaded = true;
  return 0;
}
int funcGetAttribute(int* value, int attribute, void* function) {
  ENTER("cuFuncGetAttribute");
  if (attribute != 4) return kInvalidValue;
  static_cast<FakeFunction*>(function)->isLoaded = true;
  *value = 64;
  return 0;
}
int funcSetAttribute(void* function, int attribute, int value) {
  ENTER("cuFuncSetAttribute");
  if (attribute != 8 || value > fake().sharedOptin) return kInvalidValue;
  static_cast<FakeFunction*>(function)->mostShared = value;
  return 0;
}
int occupancy(int* blocks, void*, int threads, size_t) {
  ENTER("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  *blocks = 2048 / threads;
  return 0;
}
int launchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                 unsigned sharedBytes, void* stream, void** arguments, void** extra) {
  ENTER("cuLaunchKernel");
  const auto& kernel = *static_cast<FakeFunction*>(function);
  if (kernel.context != current() || extra) return kInvalidHandle;
  FakeLaunch launch{kernel.name, current()->device, {gx, gy, gz}, {bx, by, bz}, sharedBytes, stream, {}};
  std::memcpy(&launch.arguments, arguments[0], sizeof launch.arguments);
  fake().launches.push_back(launch);
  return 0;
}
int memAlloc(unsigned long long* address, size_t bytes) {
  ENTER_UNSAFE("cuMemAlloc");
  NEED_CONTEXT();
  void* memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  std::memset(memory, 0xee, bytes);
  fake().memory[memory] = {bytes, current()->device, false, 0};
  *address = reinterpret_cast<unsigned long long>(memory);
  return 0;
}
int release(void* memory, bool isHost) {
  const auto found = fake().memory.find(memory);
  if (found == fake().memory.end() || found->second.isHost != isHost) return kInvalidValue;
  fake().memory.erase(found);
  std::free(memory);
  return 0;
}
int memFree(unsigned long long address) {
  ENTER_UNSAFE("cuMemFree");
  NEED_CONTEXT();
  return release(reinterpret_cast<void*>(address), false);
}
int memHostAlloc(void** memory, size_t bytes, unsigned flags) {
  ENTER_UNSAFE("cuMemHostAlloc");
  NEED_CONTEXT();
  *memory = std::malloc(bytes);
  std::memset(*memory, 0xee, bytes);
  fake().memory[*memory] = {bytes, current()->device, true, flags};
  return 0;
}
int memFreeHost(void* memory) {
  ENTER_UNSAFE("cuMemFreeHost");
  NEED_CONTEXT();
  return release(memory, true);
}
/// The allocation that the address lies in; null when there is none.
const FakeMemory* find(const void* address) {
  for (const auto& [base, one] : fake().memory)
    if (address >= base && address < static_cast<const char*>(base) + one.bytes) return &one;
  return nullptr;
}
int copy(void* to, const void* from, size_t bytes, void* stream, const void* host) {
  fake().copyStreams.insert(stream);
  const FakeMemory* pinned = find(host);
  if (!pinned || !pinned->isHost) return kInvalidValue;  // a copy of other memory would not be asynchronous
  std::memcpy(to, from, bytes);
  return 0;
}
int copyToDevice(unsigned long long to, const void* from, size_t bytes, void* stream) {
  ENTER("cuMemcpyHtoDAsync");
  return copy(reinterpret_cast<void*>(to), from, bytes, stream, from);
}
int copyToHost(void* to, unsigned long long from, size_t bytes, void* stream) {
  ENTER("cuMemcpyDtoHAsync");
  return copy(to, reinterpret_cast<const void*>(from), bytes, stream, to);
}
int fill(unsigned long long to, unsigned char value, size_t bytes, void* stream) {
  ENTER("cuMemsetD8Async");
  fake().copyStreams.insert(stream);
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return 0;
}
int pointerGetAttributes(unsigned count, int* attributes, void** values, unsigned long long address) {
  ENTER("cuPointerGetAttributes");
  const FakeMemory* found = find(reinterpret_cast<const void*>(address));
  for (unsigned i = 0; i < count; ++i) {
    int& value = *static_cast<int*>(values[i]);
    value = attributes[i] == 9 ? -2 : 0;
    if (found && attributes[i] == 2) value = found->isHost ? 1 : 2;
    if (found && attributes[i] == 9) value = found->device;
  }
  return 0;
}
int streamCreate(void** stream, unsigned flags) {
  ENTER("cuStreamCreate");
  NEED_CONTEXT();
  *stream = new FakeStream{current(), flags, false, 0, 0};
  return 0;
}
int streamDestroy(void* stream) {
  ENTER("cuStreamDestroy");
  delete static_cast<FakeStream*>(stream);
  return 0;
}
int streamSynchronize(void* stream) {
  (void)stream;
  return enterUnsafe("cuStreamSynchronize");
}
int streamQuery(void* stream) {
  ENTER_UNSAFE("cuStreamQuery");
  return stream && static_cast<FakeStream*>(stream)->isBusy ? 600 : 0;
}
int streamWaitEvent(void*, void*, unsigned) { return enter("cuStreamWaitEvent"); }
int streamGetCtx(void* stream, void** context) {
  ENTER("cuStreamGetCtx");
  *context = static_cast<FakeStream*>(stream)->context;
  return 0;
}
int streamGetCaptureInfo(void* stream, int* state, unsigned long long* id) {
  ENTER("cuStreamGetCaptureInfo");
  *state = stream ? static_cast<FakeStream*>(stream)->captureState : 0;
  if (*state == 1) *id = static_cast<FakeStream*>(stream)->captureId;
  return 0;
}
int exchangeCaptureMode(int* mode) {
  std::swap(fake().captureMode, *mode);
  return enter("cuThreadExchangeStreamCaptureMode");
}
int eventCreate(void** event, unsigned flags) {
  ENTER("cuEventCreate");
  NEED_CONTEXT();
  *event = new FakeEvent{current(), flags, nullptr};
  return 0;
}
int eventDestroy(void* event) {
  ENTER("cuEventDestroy");
  delete static_cast<FakeEvent*>(event);
  return 0;
}
int eventRecord(void* event, void* stream, unsigned) {
  ENTER("cuEventRecordWithFlags");
  static_cast<FakeEvent*>(event)->recorded = static_cast<FakeStream*>(stream);
  return 0;
}
int eventQuery(void* event) {
  ENTER_UNSAFE("cuEventQuery");
  const FakeStream* stream = static_cast<FakeEvent*>(event)->recorded;
  return stream && stream->isBusy ? 600 : 0;
}

const std::map<std::string, void*>& table() {
  static const std::map<std::string, void*> all = {
      {"cuInit", reinterpret_cast<void*>(init)},
      {"cuGetErrorName", reinterpret_cast<void*>(errorName)},
      {"cuGetErrorString", reinterpret_cast<void*>(errorString)},
      {"cuDeviceGetCount", reinterpret_cast<void*>(deviceGetCount)},
      {"cuDeviceGet", reinterpret_cast<void*>(deviceGet)},
      {"cuDeviceGetName", reinterpret_cast<void*>(deviceGetName)},
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(deviceGetAttribute)},
      {"cuDeviceGetPCIBusId", reinterpret_cast<void*>(deviceGetPCIBusId)},
      {"cuDeviceCanAccessPeer", reinterpret_cast<void*>(deviceCanAccessPeer)},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(primaryCtxRetain)},
      {"cuDevicePrimaryCtxRelease", reinterpret_cast<void*>(primaryCtxRelease)},
      {"cuModuleUnload", reinterpret_cast<void*>(moduleUnload)},
      {"cuStreamDestroy", reinterpret_cast<void*>(streamDestroy)},
      {"cuCtxPushCurrent", reinterpret_cast<void*>(ctxPush)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(ctxPop)},
      {"cuCtxGetCurrent", reinterpret_cast<void*>(ctxGetCurrent)},
      {"cuCtxGetDevice", reinterpret_cast<void*>(ctxGetDevice)},
      {"cuCtxEnablePeerAccess", reinterpret_cast<void*>(ctxEnablePeerAccess)},
      {"cuModuleLoadData", reinterpret_cast<void*>(moduleLoadData)},
      {"cuModuleGetFunction", reinterpret_cast<void*>(moduleGetFunction)},
      {"cuFuncLoad", reinterpret_cast<void*>(funcLoad)},
      {"cuFuncGetAttribute", reinterpret_cast<void*>(funcGetAttribute)},
      {"cuFuncSetAttribute", reinterpret_cast<void*>(funcSetAttribute)},
      {"cuOccupancyMaxActiveBlocksPerMultiprocessor", reinterpret_cast<void*>(occupancy)},
      {"cuLaunchKernel", reinterpret_cast<void*>(launchKernel)},
      {"cuMemAlloc", reinterpret_cast<void*>(memAlloc)},
      {"cuMemFree", reinterpret_cast<void*>(memFree)},
      {"cuMemHostAlloc", reinterpret_cast<void*>(memHostAlloc)},
      {"cuMemFreeHost", reinterpret_cast<void*>(memFreeHost)},
      {"cuMemcpyHtoDAsync", reinterpret_cast<void*>(copyToDevice)},
      {"cuMemcpyDtoHAsync", reinterpret_cast<void*>(copyToHost)},
      {"cuMemsetD8Async", reinterpret_cast<void*>(fill)},
      {"cuPointerGetAttributes", reinterpret_cast<void*>(pointerGetAttributes)},
      {"cuStreamCreate", reinterpret_cast<void*>(streamCreate)},
      {"cuStreamSynchronize", reinterpret_cast<void*>(streamSynchronize)},
      {"cuStreamQuery", reinterpret_cast<void*>(streamQuery)},
      {"cuStreamWaitEvent", reinterpret_cast<void*>(streamWaitEvent)},
      {"cuStreamGetCtx", reinterpret_cast<void*>(streamGetCtx)},
      {"cuStreamGetCaptureInfo", reinterpret_cast<void*>(streamGetCaptureInfo)},
      {"cuThreadExchangeStreamCaptureMode", reinterpret_cast<void*>(exchangeCaptureMode)},
      {"cuEventCreate", reinterpret_cast<void*>(eventCreate)},
      {"cuEventDestroy", reinterpret_cast<void*>(eventDestroy)},
      {"cuEventRecordWithFlags", reinterpret_cast<void*>(eventRecord)},
      {"cuEventQuery", reinterpret_cast<void*>(eventQuery)},
  };
  return all;
}

}  // namespace

extern "C" {

PUBLIC FakeCuda* fakeCuda(void) { return &fake(); }

PUBLIC int cuDriverGetVersion(int* version) {
  *version = fake().version;
  return 0;
}

PUBLIC int cuGetProcAddress_v2(const char* symbol, void** address, int version, unsigned long long flags,
                               int* state) {
  const auto found = table().find(symbol);
  *state = 0;
  *address = nullptr;
  if (flags != 1 || found == table().end() || fake().missing.count(symbol) || version > fake().version) {
    *state = 1;
    return 500;
  }
  fake().versions[symbol] = version;
  *address = found->second;
  return 0;
}

}  // extern "C"
