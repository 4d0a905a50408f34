// What tests/hostrt runs in a process of its own: hostrt_helper COMMAND ...
#include <cuda_runtime.h>
#include <dirent.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/host_runtime.h"
#include "support/forked_leaks.h"

extern "C" const tuttiHostRuntime_v1* tuttiHostRuntime_v1_get(void);

namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
  std::fflush(stdout);
  std::_Exit(3);
}
#define CHECK(call) check(call, #call)

int countThreads() {
  int count = 0;
  DIR* dir = ::opendir("/proc/self/task");
  while (const dirent* entry = dir ? ::readdir(dir) : nullptr) count += entry->d_name[0] != '.';
  if (dir) ::closedir(dir);
  return count;
}

int devices() {
  int count = -1;
  const cudaError_t error = cudaGetDeviceCount(&count);
  std::printf("%s %d", cudaGetErrorName(error), count);
  for (int device = 0; device < count; ++device) {
    char id[32];
    CHECK(cudaDeviceGetPCIBusId(id, sizeof id, device));
    std::printf(" %s", id);
  }
  std::printf("\n");
  return 0;
}

/// A line a device: address, capability, ways to the others (native atomics: n, no: p, no access: -), name.
int describeDevices() {
  int count = 0;
  CHECK(cudaGetDeviceCount(&count));
  for (int device = 0; device < count; ++device) {
    char id[32];
    cudaDeviceProp properties;
    int found = -1;
    CHECK(cudaDeviceGetPCIBusId(id, sizeof id, device));
    CHECK(cudaDeviceGetByPCIBusId(&found, id));
    CHECK(cudaGetDeviceProperties(&properties, device));
    if (found != device) return 3;
    char address[32];
    std::snprintf(address, sizeof address, "%04x:%02x:%02x.0", static_cast<unsigned>(properties.pciDomainID),
                  static_cast<unsigned>(properties.pciBusID), static_cast<unsigned>(properties.pciDeviceID));
    if (std::strcmp(address, id) != 0) return 4;
    std::string ways;
    for (int peer = 0; peer < count; ++peer) {
      int can = 0;
      int atomics = 0;
      CHECK(cudaDeviceCanAccessPeer(&can, device, peer));
      if (device != peer)
        CHECK(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device, peer));
      ways += !can ? '-' : atomics ? 'n' : 'p';
    }
    std::printf("%s %d.%d %s %s\n", id, properties.major, properties.minor, ways.c_str(), properties.name);
  }
  return 0;
}

cudaIpcMemHandle_t fromHex(const char* text) {
  cudaIpcMemHandle_t handle{};
  for (size_t i = 0; i < sizeof handle; ++i) {
    unsigned value = 0;
    std::sscanf(text + 2 * i, "%2x", &value);
    handle.reserved[i] = static_cast<char>(value);
  }
  return handle;
}

/// Opens the handle, checks that every byte is `expected`, and writes expected + 1 everywhere.
int ipcOpen(const char* hex, size_t bytes, int expected) {
  const cudaIpcMemHandle_t handle = fromHex(hex);
  void* pointer = nullptr;
  void* again = nullptr;
  CHECK(cudaIpcOpenMemHandle(&pointer, handle, cudaIpcMemLazyEnablePeerAccess));
  CHECK(cudaIpcOpenMemHandle(&again, handle, cudaIpcMemLazyEnablePeerAccess));
  if (again != pointer) return 4;
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, static_cast<char*>(pointer) + bytes - 1));
  if (attributes.type != cudaMemoryTypeDevice) return 5;
  std::vector<unsigned char> content(bytes);
  CHECK(cudaMemcpy(content.data(), pointer, bytes, cudaMemcpyDeviceToHost));
  if (content[0] != expected || std::memcmp(content.data(), content.data() + 1, bytes - 1) != 0) return 6;
  CHECK(cudaMemset(pointer, expected + 1, bytes));
  if (cudaFree(pointer) == cudaSuccess) return 7;  // only CloseMemHandle may
  CHECK(cudaIpcCloseMemHandle(pointer));
  CHECK(cudaPointerGetAttributes(&attributes, pointer));
  if (attributes.type != cudaMemoryTypeDevice) return 8;  // opened twice
  CHECK(cudaIpcCloseMemHandle(pointer));
  CHECK(cudaPointerGetAttributes(&attributes, pointer));
  if (attributes.type != cudaMemoryTypeUnregistered) return 9;
  return cudaIpcCloseMemHandle(pointer) == cudaSuccess ? 10 : 0;
}

/// Leaves main while a worker is busy and others have work queued.
int exitBusy() {
  static std::atomic<bool> started{false};
  cudaStream_t streams[4];
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 8 << 20));
  for (cudaStream_t& stream : streams) {
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaLaunchHostFunc(
        stream,
        [](void*) {
          started = true;
          ::usleep(50000);
        },
        nullptr));
    for (int i = 0; i < 100; ++i) CHECK(cudaMemsetAsync(memory, i, 8 << 20, stream));
  }
  while (!started) std::this_thread::yield();
  return 0;  // static destructors run while work goes on
}

/// A static object that uses the runtime after main.
struct AtExit {
  bool enabled = false;
  cudaStream_t stream = nullptr;
  void* memory = nullptr;
  ~AtExit() {
    if (!enabled) return;
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(memory));
    CHECK(cudaDeviceSynchronize());
    std::puts("released");
    std::fflush(stdout);
  }
} atExit;

int useInDestructor() {
  atExit.enabled = true;
  CHECK(cudaStreamCreate(&atExit.stream));
  CHECK(cudaMalloc(&atExit.memory, 1 << 20));
  CHECK(cudaLaunchHostFunc(
      atExit.stream, [](void*) { ::usleep(20000); }, nullptr));
  CHECK(cudaMemsetAsync(atExit.memory, 1, 1 << 20, atExit.stream));
  return 0;
}

int forkChild(bool childUsesCuda) {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaLaunchHostFunc(
      stream, [](void*) { ::usleep(100000); }, nullptr));
  const pid_t child = ::fork();
  if (child == 0) {
    int count = 0;
    if (childUsesCuda) std::exit(cudaGetDeviceCount(&count) == cudaErrorInitializationError ? 42 : 1);
    std::exit(42);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 4;
  CHECK(cudaStreamSynchronize(stream));
  return WEXITSTATUS(status);
}

int threadsAtStart() {
  int count = 0;
  CHECK(cudaGetDeviceCount(&count));
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 4096));
  int value = 7;
  CHECK(cudaMemcpy(memory, &value, 4, cudaMemcpyHostToDevice));
  cudaStream_t stream;
  cudaEvent_t event;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&event));
  CHECK(cudaMemcpyAsync(memory, &value, 4, cudaMemcpyHostToDevice, stream));
  CHECK(cudaEventRecord(event, stream));
  CHECK(cudaStreamWaitEvent(cudaStreamLegacy, event));
  CHECK(cudaDeviceSynchronize());
  std::printf("threads %d\n", countThreads());
  return 0;
}

int workersEnd() {
  cudaStream_t streams[6];
  for (cudaStream_t& stream : streams) {
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaLaunchHostFunc(
        stream, [](void*) { ::usleep(1000); }, nullptr));
  }
  CHECK(cudaDeviceSynchronize());
  const int busy = countThreads();
  for (int i = 0; i < 80 && countThreads() > 1; ++i) ::usleep(100000);
  std::printf("threads %d then %d\n", busy, countThreads());
  return 0;
}

int missingFunction() {
  const auto missing = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "cudaCreateTextureObject"));
  if (!missing) return 4;
  for (int i = 0; i < 3; ++i)
    if (missing() != cudaErrorNotSupported) return 5;
  return cudaGetLastError() == cudaErrorNotSupported ? 0 : 6;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "devices") return devices();
  if (command == "describe-devices") return describeDevices();
  if (command == "ipc-open" && argc == 5)
    return ipcOpen(argv[2], std::strtoul(argv[3], nullptr, 10), std::atoi(argv[4]));
  if (command == "exit-busy") return exitBusy();
  if (command == "use-in-destructor") return useInDestructor();
  if (command == "fork") return forkChild(false);
  if (command == "fork-use") return forkChild(true);
  if (command == "threads-at-start") return threadsAtStart();
  if (command == "workers-end") return workersEnd();
  if (command == "missing-function") return missingFunction();
  std::printf("unknown command\n");
  return 2;
}
