// AllReduce of float sums by threads of one process, each on its own core, at the level of the executor: how
// long a call takes, by algorithm and size. Inputs are rewritten before every call. Prints the median and the
// minimum over calls of the maximum over ranks, in microseconds.
//
//   bench_executor [ranks [algorithm [bytes]]]
//   environment: SLICE, SLOT, SCRATCH, STREAM (bytes), WARM=1 (inputs are not rewritten),
//   FREE=1 (no barriers between calls: the mean time of a call, for more ranks than cores)
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "algorithms/registry.h"
#include "executor/host/host_executor.h"
#include "support/local_oob.h"

namespace {

using namespace tutti;
using Clock = std::chrono::steady_clock;

size_t fromEnvironment(const char* name, size_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

class SpinBarrier {
 public:
  explicit SpinBarrier(int parties)
      : parties_(parties),
        limit_(parties > static_cast<int>(std::thread::hardware_concurrency()) ? 0 : 20000) {}
  void wait() {
    const int phase = phase_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == parties_) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
    } else {
      for (int spins = 0; phase_.load(std::memory_order_acquire) == phase; ++spins) {
        if (spins > limit_) sched_yield();
      }
    }
  }

 private:
  const int parties_;
  const int limit_;  // polls before the core is given away
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<int> phase_{0};
};

/// Nanoseconds for a cache line to go to the other core and back: says how the (virtual) cores lie to each
/// other today.
double roundTripNanos() {
  constexpr int kTrips = 20000;
  alignas(64) static std::atomic<int> ping;
  alignas(64) static std::atomic<int> pong;
  ping.store(0);
  pong.store(0);
  const auto pin = [](int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof(set), &set);
  };
  double nanos = 0;
  std::thread other([&] {
    pin(1);
    for (int i = 1; i <= kTrips; ++i) {
      while (ping.load(std::memory_order_acquire) != i) {
      }
      pong.store(i, std::memory_order_release);
    }
  });
  std::thread self([&] {
    pin(0);
    const auto start = Clock::now();
    for (int i = 1; i <= kTrips; ++i) {
      ping.store(i, std::memory_order_release);
      while (pong.load(std::memory_order_acquire) != i) {
      }
    }
    nanos = std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kTrips;
  });
  self.join();
  other.join();
  return nanos;
}

float* allocate(size_t bytes) {
  const size_t rounded = (bytes + 4095) / 4096 * 4096;
  void* memory =
      mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  madvise(memory, rounded, MADV_HUGEPAGE);
  std::fill_n(static_cast<float*>(memory), bytes / sizeof(float), 1.0f);
  return static_cast<float*>(memory);
}

struct Bench {
  int ranks;
  EndpointOptions options;
  ExecutorOptions executorOptions;
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::vector<std::unique_ptr<HostExecutor>> executors;

  explicit Bench(int count) : ranks(count), endpoints(static_cast<size_t>(count)) {
    options.slotBytes = fromEnvironment("SLOT", 128 << 10);
    options.scratchBytes = fromEnvironment("SCRATCH", 1 << 20);
    executorOptions.streamBytes = fromEnvironment("STREAM", 0);
    std::vector<PeerInfo> peers;
    for (int r = 0; r < ranks; ++r) peers.push_back({r, "h", "h", 1, 1, r});
    auto hub = std::make_shared<test::LocalOobHub>(ranks);
    auto faults = std::make_shared<FaultState>();
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        test::LocalOob oob(hub, r);
        auto made = Endpoint::create(peers, r, options, oob, faults, Deadline::never());
        if (!made.isOk()) std::abort();
        endpoints[static_cast<size_t>(r)] = std::move(made).value();
      });
    }
    for (auto& thread : threads) thread.join();
    executorOptions.wait = WaitPolicy::forRanks(*endpoints[0]);
    for (auto& endpoint : endpoints) {
      executors.push_back(std::make_unique<HostExecutor>(*endpoint, faults, executorOptions));
    }
  }

  void run(const std::string& algorithm, size_t bytes) {
    const size_t count = bytes / sizeof(float);
    std::vector<std::byte*> inputs, outputs;
    for (int r = 0; r < ranks; ++r) {
      inputs.push_back(reinterpret_cast<std::byte*>(allocate(bytes)));
      outputs.push_back(reinterpret_cast<std::byte*>(allocate(bytes)));
    }
    const int calls = bytes <= 65536
                          ? 8000 / ranks
                          : static_cast<int>(std::max<size_t>(20, (size_t{400} << 20) / bytes / 2));
    const bool free = fromEnvironment("FREE", 0) != 0;
    const bool warm = free || fromEnvironment("WARM", 0) != 0;
    SpinBarrier barrier(ranks);
    std::vector<std::vector<double>> times(static_cast<size_t>(ranks),
                                           std::vector<double>(static_cast<size_t>(calls)));
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(r % static_cast<int>(std::thread::hardware_concurrency()), &set);
        sched_setaffinity(0, sizeof(set), &set);
        auto made = generate(algorithm, {Collective::allReduce, ranks, r, 0, {}});
        if (!made.isOk()) {
          std::fprintf(stderr, "%s\n", made.status().message().c_str());
          std::abort();
        }
        Launch launch;
        launch.schedule = std::make_shared<const Schedule>(std::move(made).value());
        launch.shape = {Collective::allReduce, ranks, 0, launch.schedule->parts, count, sizeof(float), 0, 1};
        launch.shape.sliceBytes =
            std::min(launch.schedule->maxSliceBytes(options.slotBytes, options.scratchBytes),
                     fromEnvironment("SLICE", algorithm == "direct" ? 1 << 20 : 64 << 10));
        launch.reduction = {Reduction::sum, ncclFloat32};
        launch.input = inputs[static_cast<size_t>(r)];
        launch.output = outputs[static_cast<size_t>(r)];
        launch.peerInput = inputs;
        launch.peerOutput = outputs;
        HostExecutor& executor = *executors[static_cast<size_t>(r)];
        auto* input = reinterpret_cast<float*>(inputs[static_cast<size_t>(r)]);
        for (int c = 0; c < calls; ++c) {
          if (!warm) std::fill_n(input, count, static_cast<float>(r + c % 7));
          if (!free) barrier.wait();
          const auto start = Clock::now();
          auto run = executor.start({&launch, 1});
          if (!run.isOk() || !executor.finish(**run).isOk()) std::abort();
          (*run).reset();
          times[static_cast<size_t>(r)][static_cast<size_t>(c)] =
              std::chrono::duration<double, std::micro>(Clock::now() - start).count();
          if (!free) barrier.wait();
          if (!warm && count > 0) {
            float expected = 0;
            for (int p = 0; p < ranks; ++p) expected += static_cast<float>(p + c % 7);
            const auto* output = reinterpret_cast<const float*>(outputs[static_cast<size_t>(r)]);
            if (output[0] != expected || output[count - 1] != expected) std::abort();
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
    std::vector<double> slowest(static_cast<size_t>(calls));
    for (int c = 0; c < calls; ++c) {
      for (const auto& rank : times) {
        slowest[static_cast<size_t>(c)] =
            std::max(slowest[static_cast<size_t>(c)], rank[static_cast<size_t>(c)]);
      }
    }
    if (free) {
      double sum = 0;
      for (const double time : times[0]) sum += time;
      std::printf("%-9s %10zu B  mean %9.2f us\n", algorithm.c_str(), bytes, sum / calls);
    }
    std::sort(slowest.begin(), slowest.end());
    std::printf("%-9s %10zu B  median %9.2f  min %9.2f us  (line round trip %.0f ns)\n", algorithm.c_str(),
                bytes, slowest[slowest.size() / 2], slowest[0], roundTripNanos());
    std::fflush(stdout);
    for (int r = 0; r < ranks; ++r) {
      munmap(inputs[static_cast<size_t>(r)], (bytes + 4095) / 4096 * 4096);
      munmap(outputs[static_cast<size_t>(r)], (bytes + 4095) / 4096 * 4096);
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  std::vector<std::string> names = {"oneshot", "twoshot", "direct", "ring"};
  if (argc > 2) names = {argv[2]};
  std::vector<size_t> sizes = {8, 1 << 10, 16 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
  if (argc > 3) sizes = {std::strtoull(argv[3], nullptr, 0)};
  Bench bench(ranks);
  for (const auto& name : names) {
    for (const size_t bytes : sizes) {
      if (argc <= 3 && name == "oneshot" && bytes > (1 << 20)) continue;
      bench.run(name, bytes);
    }
  }
  return 0;
}
