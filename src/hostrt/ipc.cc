// Memory handles for other processes.
//
// A handle names a descriptor of the process that made it: /proc/PID/fd/N. Opening it needs no thread and no
// socket there; the kernel lets the same user in (as for ptrace) and nobody else. The file's device and inode
// numbers stand in the handle too, so that a descriptor number or process id used again for something else is
// noticed.
//
//   exporter                              importer
//   handle = {pid, fd, inode, ...}  --->  open /proc/pid/fd/n, same inode? map the file
//
// Limits: the exporter must be alive and the memory not freed when the handle is opened; both processes must
// see the same /proc (one PID namespace).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "hostrt/device.h"
#include "hostrt/log.h"
#include "hostrt/memory.h"

namespace tutti::hostrt {
namespace {

constexpr uint64_t kMagic = 0x3143504974747554;  // "TuttIPC1"

struct Handle {
  uint64_t magic;
  int32_t pid;
  int32_t fd;
  int32_t slot;  // of the device
  int32_t unused;
  uint64_t fileDevice;
  uint64_t inode;
  uint64_t offset;
  uint64_t bytes;
};
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t));

struct Opened {
  void* pointer;
  int uses;
};

struct OpenedHandles {
  std::mutex mutex;
  std::map<std::string, Opened> byHandle;
};

OpenedHandles& opened() {
  static auto* all = new OpenedHandles;
  return *all;
}

cudaError_t exportMemory(cudaIpcMemHandle_t* out, const void* pointer) {
  ExportInfo info;
  if (!out || !memory().exportOf(pointer, &info)) {
    explain("cudaIpcGetMemHandle: {} is not memory of cudaMalloc", fmt::ptr(pointer));
    return cudaErrorInvalidValue;
  }
  struct stat file {};
  if (::fstat(info.fd, &file) != 0) return cudaErrorUnknown;
  const Device* device = findDevice(info.device);
  const Handle handle{kMagic,      ::getpid(),  info.fd,   device ? device->slot : 0, 0, file.st_dev,
                      file.st_ino, info.offset, info.bytes};
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &handle, sizeof handle);
  return cudaSuccess;
}

/// The exporter's file, or -1 after saying why not.
int openFile(const Handle& handle) {
  const std::string path = fmt::format("/proc/{}/fd/{}", handle.pid, handle.fd);
  // Looked at before it is opened: opening a pipe or device that took the number could block or have effects.
  struct stat file {};
  const auto isTheFile = [&] { return file.st_dev == handle.fileDevice && file.st_ino == handle.inode; };
  if (::stat(path.c_str(), &file) != 0) {
    explain("cudaIpcOpenMemHandle: {}: {} (has process {} ended, or does it run in another PID namespace?)",
            path, ::strerrordesc_np(errno), handle.pid);
    return -1;
  }
  if (!isTheFile()) {
    explain(
        "cudaIpcOpenMemHandle: {} is another file: the memory was freed, or process {} is of another PID "
        "namespace",
        path, handle.pid);
    return -1;
  }
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    explain("cudaIpcOpenMemHandle: {}: {}", path, ::strerrordesc_np(errno));
    return -1;
  }
  if (::fstat(fd, &file) == 0 && isTheFile()) return fd;
  explain("cudaIpcOpenMemHandle: {} changed while it was opened", path);
  ::close(fd);
  return -1;
}

cudaError_t importMemory(void** pointer, const cudaIpcMemHandle_t& bytes, unsigned int flags) {
  if (!pointer || flags != cudaIpcMemLazyEnablePeerAccess) return cudaErrorInvalidValue;
  Handle handle;
  std::memcpy(&handle, &bytes, sizeof handle);
  if (handle.magic != kMagic) {
    explain("cudaIpcOpenMemHandle: the handle is not one of this runtime");
    return cudaErrorInvalidResourceHandle;
  }
  // As in CUDA, which has no use for a second mapping in the process that owns the memory. (A process of
  // another PID namespace may have the same id.)
  struct stat own {};
  if (handle.pid == ::getpid() && ::fstat(handle.fd, &own) == 0 && own.st_dev == handle.fileDevice &&
      own.st_ino == handle.inode)
    return cudaErrorDeviceUninitialized;
  const Device* device = currentDeviceOrNull();
  if (!device) return cudaErrorNoDevice;
  for (const auto& candidate : devices())
    if (candidate->slot == handle.slot) device = candidate.get();

  OpenedHandles& all = opened();
  const std::lock_guard lock(all.mutex);
  const std::string key(bytes.reserved, sizeof bytes.reserved);
  if (const auto known = all.byHandle.find(key); known != all.byHandle.end()) {
    ++known->second.uses;
    *pointer = known->second.pointer;
    return cudaSuccess;
  }
  const int fd = openFile(handle);
  if (fd < 0) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = memory().import(device->index, fd, handle.offset, handle.bytes, pointer))
    return error;
  all.byHandle.emplace(key, Opened{*pointer, 1});
  return cudaSuccess;
}

cudaError_t closeMemory(void* pointer) {
  OpenedHandles& all = opened();
  const std::lock_guard lock(all.mutex);
  for (auto entry = all.byHandle.begin(); entry != all.byHandle.end(); ++entry) {
    if (entry->second.pointer != pointer) continue;
    if (--entry->second.uses > 0) return cudaSuccess;
    all.byHandle.erase(entry);
    return memory().free(pointer, MemoryKind::imported);
  }
  return cudaErrorInvalidValue;
}

}  // namespace
}  // namespace tutti::hostrt

using namespace tutti::hostrt;

extern "C" {

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* devPtr) {
  return apiCall([&] { return exportMemory(handle, devPtr); });
}

cudaError_t cudaIpcOpenMemHandle(void** devPtr, cudaIpcMemHandle_t handle, unsigned int flags) {
  return apiCall([&] { return importMemory(devPtr, handle, flags); });
}

cudaError_t cudaIpcCloseMemHandle(void* devPtr) {
  return apiCall([&] {
    std::vector<Marker> markers;  // work in flight may use the mapping
    if (Device* device = findDevice(memory().find(devPtr).device)) device->pending(markers);
    waitForAll(markers);
    return closeMemory(devPtr);
  });
}

}  // extern "C"
