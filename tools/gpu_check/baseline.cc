// gpu-baseline: what the machine's GPUs can do at best, for comparison with collectives: copies inside a
// device and between devices, and kernel launches. Prints JSON.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/runtime_select.h"
#include "gpu_check/kernels.h"

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr size_t kSmallest = 8;
constexpr size_t kFewIterationsFrom = 16u << 20;
constexpr const char* kUsage =
    "usage: gpu-baseline OUT.json [MAX_BYTES [SECONDS]]\n"
    "Writes facts about the devices, copy bandwidths from 8 bytes to MAX_BYTES (1073741824) and launch\n"
    "latencies to OUT.json. After SECONDS (20) it begins nothing new.\n";

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "gpu-baseline: %s\n", message.c_str());
  std::exit(1);
}

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail(std::string(what) + ": " + cudaGetErrorString(error));
}

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Of one operation, of `iterations` that are enqueued back to back; the best of three.
double secondsOf(int iterations, cudaStream_t stream, const std::function<cudaError_t()>& enqueue) {
  check(enqueue(), "enqueue");  // warm
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  double best = 1e9;
  for (int round = 0; round < 3; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < iterations; ++i) check(enqueue(), "enqueue");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    best = std::min(best, since(start) / iterations);
  }
  return best;
}

/// From the launch until the host knows that the kernel is done: the median.
double secondsOfRoundTrip(cudaStream_t stream) {
  std::vector<double> all;
  for (int i = 0; i < 201; ++i) {
    const auto start = Clock::now();
    check(tutti::gpu_check::launchEmpty(stream), "launch of an empty kernel");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    all.push_back(since(start));
  }
  std::nth_element(all.begin(), all.begin() + 100, all.end());
  return all[100];
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, which, device) == cudaSuccess ? value : 0;
}

Json deviceFacts(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  size_t free = 0;
  size_t total = 0;
  check(cudaSetDevice(device), "cudaSetDevice");
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return {{"device", device},
          {"name", properties.name},
          {"compute_capability", std::to_string(properties.major) + "." + std::to_string(properties.minor)},
          {"multiprocessors", attribute(cudaDevAttrMultiProcessorCount, device)},
          {"l2_bytes", attribute(cudaDevAttrL2CacheSize, device)},
          {"memory_bytes", total},
          {"free_bytes", free}};
}

/// Which file a function of the loaded libraries is from.
std::string fileOf(const char* library, const char* function) {
  void* handle = ::dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  void* symbol = handle ? ::dlsym(handle, function) : nullptr;
  Dl_info info{};
  return symbol && ::dladdr(symbol, &info) != 0 && info.dli_fname ? info.dli_fname : "";
}

Json facts(int devices) {
  Json json;
  int version = 0;
  check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
  json["driver_cuda"] = version;
  check(cudaRuntimeGetVersion(&version), "cudaRuntimeGetVersion");
  json["runtime_cuda"] = version;
  json["driver_file"] = fileOf("libcuda.so.1", "cuInit");
  json["runtime_file"] = fileOf("libcudart.so.13", "cudaMalloc");
  json["virtual"] = ::dlsym(RTLD_DEFAULT, "tuttiHostRuntime_v1_get") != nullptr;
  json["devices"] = Json::array();
  for (int device = 0; device < devices; ++device) json["devices"].push_back(deviceFacts(device));
  return json;
}

/// Two buffers of device 0, or the second one of a peer.
struct Buffers {
  Buffers(size_t bytes, int peer) : toDevice(peer) {
    check(cudaSetDevice(peer), "cudaSetDevice");
    check(cudaMalloc(&to, bytes), "cudaMalloc");
    check(cudaMemset(to, 1, bytes), "cudaMemset");
    check(cudaSetDevice(0), "cudaSetDevice");
    check(cudaMalloc(&from, bytes), "cudaMalloc");
    check(cudaMemset(from, 2, bytes), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  ~Buffers() {
    cudaFree(from);
    cudaFree(to);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  int toDevice;
  void* from = nullptr;
  void* to = nullptr;
};

/// The last byte, and so the whole of an ordered copy, has arrived.
void checkCopied(const Buffers& buffers, size_t bytes, const char* how) {
  char last = 0;
  check(cudaMemcpy(&last, static_cast<const char*>(buffers.to) + bytes - 1, 1, cudaMemcpyDeviceToHost),
        "cudaMemcpy");
  if (last != 2) fail(std::string(how) + " of " + std::to_string(bytes) + " bytes did not copy");
}

/// As many as the memory of the device, the request and half of what is free allow.
size_t mostBytes(size_t wanted) {
  size_t free = 0;
  size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  while (wanted > kSmallest && 2 * wanted > free / 2) wanted /= 4;
  return wanted;
}

Json copies(size_t most, cudaStream_t stream, Clock::time_point end) {
  Json rows = Json::array();
  most = mostBytes(most);
  const Buffers buffers(most, 0);
  const auto blocks = static_cast<unsigned>(4 * std::max(1, attribute(cudaDevAttrMultiProcessorCount, 0)));
  for (size_t bytes = kSmallest; bytes <= most; bytes *= 2) {
    if (Clock::now() > end) break;
    const int iterations = bytes < kFewIterationsFrom ? 50 : 5;
    const double call = secondsOf(iterations, stream, [&] {
      return cudaMemcpyAsync(buffers.to, buffers.from, bytes, cudaMemcpyDeviceToDevice, stream);
    });
    checkCopied(buffers, bytes, "cudaMemcpyAsync");
    check(cudaMemset(buffers.to, 1, bytes), "cudaMemset");
    const double kernel = secondsOf(iterations, stream, [&] {
      return tutti::gpu_check::launchCopy(buffers.to, buffers.from, bytes, blocks, stream);
    });
    checkCopied(buffers, bytes, "a kernel's copy");
    check(cudaMemset(buffers.to, 1, bytes), "cudaMemset");
    const auto rate = static_cast<double>(bytes) / 1e9;
    rows.push_back({{"bytes", bytes},
                    {"memcpy_us", call * 1e6},
                    {"memcpy_gbps", rate / call},
                    {"kernel_us", kernel * 1e6},
                    {"kernel_gbps", rate / kernel}});
  }
  return rows;
}

/// From device 0 to each other one.
Json peerCopies(size_t most, int devices, cudaStream_t stream, Clock::time_point end) {
  Json rows = Json::array();
  const size_t bytes = mostBytes(std::min<size_t>(most, 256u << 20));
  for (int peer = 1; peer < devices && Clock::now() < end; ++peer) {
    int direct = 0;
    check(cudaDeviceCanAccessPeer(&direct, 0, peer), "cudaDeviceCanAccessPeer");
    if (direct != 0) {
      const cudaError_t enabled = cudaDeviceEnablePeerAccess(peer, 0);
      if (enabled != cudaErrorPeerAccessAlreadyEnabled) check(enabled, "cudaDeviceEnablePeerAccess");
    }
    const Buffers buffers(bytes, peer);
    const double seconds = secondsOf(
        5, stream, [&] { return cudaMemcpyPeerAsync(buffers.to, peer, buffers.from, 0, bytes, stream); });
    rows.push_back({{"peer", peer},
                    {"direct", direct != 0},
                    {"bytes", bytes},
                    {"us", seconds * 1e6},
                    {"gbps", static_cast<double>(bytes) / 1e9 / seconds}});
  }
  return rows;
}

size_t numberFrom(const char* text, const char* name) {
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (end == text || *end || value == 0) fail(std::string(name) + " " + text + ": expected a whole number");
  return value;
}

void write(const std::string& path, const Json& json) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (!file) fail("cannot open " + path);
  const std::string text = json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) fail("cannot write " + path);
}

}  // namespace

int main(int argc, char** argv) {
  tutti::selectRuntime(argc, argv);
  if (argc < 2 || argc > 4 || argv[1][0] == '-') {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const size_t most = argc > 2 ? numberFrom(argv[2], "MAX_BYTES") : size_t{1} << 30;
  const auto end = Clock::now() + std::chrono::seconds(argc > 3 ? numberFrom(argv[3], "SECONDS") : 20);
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  if (devices < 1) fail("there is no device");
  Json json = facts(devices);
  write(argv[1], json);  // so that they are there whatever happens next
  check(cudaSetDevice(0), "cudaSetDevice");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  const double launch = secondsOf(1000, stream, [&] { return tutti::gpu_check::launchEmpty(stream); });
  json["launch_us"] = launch * 1e6;
  json["launch_and_wait_us"] = secondsOfRoundTrip(stream) * 1e6;
  json["copies"] = copies(most, stream, end);
  json["peer_copies"] = peerCopies(most, devices, stream, end);
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  write(argv[1], json);
  return 0;
}
