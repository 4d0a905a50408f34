#include "hostrt/kernel_run.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <list>
#include <thread>

#include "hostrt/device.h"
#include "hostrt/kernel_block.h"
#include "hostrt/kernel_limits.h"
#include "hostrt/kernel_sanitizers.h"
#include "hostrt/kernel_workers.h"
#include "hostrt/log.h"

namespace tutti::hostrt {
namespace {

/// What a device holds at the same time. Blocks beyond it wait, as on a GPU.
struct Residency {
  std::mutex mutex;
  std::condition_variable freed;
  size_t threads = size_t{kMultiprocessors} * kThreadsPerMultiprocessor;
  size_t blocks = size_t{kMultiprocessors} * kBlocksPerMultiprocessor;
  size_t shared = kMultiprocessors * kSharedPerMultiprocessor;

  bool fits(const KernelLaunch& launch, size_t count) const {
    return blocks >= count && threads >= count * launch.threads() && shared >= count * launch.dynamicShared;
  }
  void change(const KernelLaunch& launch, size_t count, bool isTaken) {
    const auto apply = [&](size_t& value, size_t amount) {
      value = isTaken ? value - amount : value + amount;
    };
    apply(blocks, count);
    apply(threads, count * launch.threads());
    apply(shared, count * launch.dynamicShared);
  }
};

/// Never destroyed: workers may run while the process exits.
Residency& residencyOf(const Device& device) {
  static std::mutex mutex;
  static auto* all = new std::vector<std::unique_ptr<Residency>>;
  const std::lock_guard lock(mutex);
  const auto index = static_cast<size_t>(device.index);
  while (all->size() <= index) all->push_back(std::make_unique<Residency>());
  return *(*all)[index];
}

/// Room for `count` blocks at once; waits for it. False when the device failed meanwhile.
bool enterDevice(KernelRun& run, size_t count) {
  Residency& residency = residencyOf(run.device);
  std::unique_lock lock(residency.mutex);
  while (!residency.fits(run.launch, count)) {
    if (run.isCancelled()) return false;
    residency.freed.wait_for(lock, std::chrono::milliseconds(100));
  }
  residency.change(run.launch, count, true);
  return true;
}

bool tryEnterDevice(KernelRun& run) {
  Residency& residency = residencyOf(run.device);
  const std::lock_guard lock(residency.mutex);
  if (!residency.fits(run.launch, 1)) return false;
  residency.change(run.launch, 1, true);
  return true;
}

void leaveDevice(KernelRun& run) {
  Residency& residency = residencyOf(run.device);
  const std::lock_guard lock(residency.mutex);
  residency.change(run.launch, 1, false);
  residency.freed.notify_all();
}

struct RunningKernels {
  std::mutex mutex;
  std::list<KernelRun*> runs;
};

RunningKernels& runningKernels() {
  static auto* all = new RunningKernels;
  return *all;
}

/// Listed while it lives.
class Listed {
 public:
  explicit Listed(KernelRun& run) {
    const std::lock_guard lock(runningKernels().mutex);
    place_ = runningKernels().runs.insert(runningKernels().runs.end(), &run);
  }
  ~Listed() {
    const std::lock_guard lock(runningKernels().mutex);
    runningKernels().runs.erase(place_);
  }
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;

 private:
  std::list<KernelRun*>::iterator place_;
};

/// One more worker, for which there is room on the device already.
void startWorker(KernelRun& run) {
  {
    const std::lock_guard lock(run.mutex);
    ++run.workers;
  }
  if (giveToBlockWorker(run)) return;
  std::unique_lock lock(run.mutex);
  const bool isOnly = --run.workers == 0;
  if (!isOnly) {  // those that there are go on with the rest
    lock.unlock();
    return leaveDevice(run);
  }
  ++run.workers;
  lock.unlock();
  warn("no thread left for kernel {}: its blocks run one after the other", run.launch.name);
  runBlocks(run);
}

/// Starts workers and waits until all blocks are done.
void superviseGrid(KernelRun& run) {
  const size_t processors = std::max(2u, std::thread::hardware_concurrency());
  const size_t first = run.launch.isCooperative ? run.total : 1;
  if (!enterDevice(run, first)) return;
  for (size_t i = 0; i < first; ++i) startWorker(run);
  for (size_t i = first; i < std::min(processors, run.total) && tryEnterDevice(run); ++i) startWorker(run);
  size_t lastFinished = 0;
  std::unique_lock lock(run.mutex);
  while (run.workers > 0) {
    const auto patience = run.hasUnstarted() ? std::chrono::milliseconds(1) : std::chrono::milliseconds(1000);
    run.changed.wait_for(lock, patience, [&] { return run.workers == 0 || run.polls.load(); });
    const size_t finished = run.finished.load();
    const bool isStuck = run.polls.exchange(false) || finished == lastFinished;
    lastFinished = finished;
    if (!isStuck || !run.hasUnstarted() || run.isCancelled()) continue;
    // Twice as many each time: a grid whose blocks wait for each other is complete soon, one that computes is
    // not torn into more threads than it takes.
    const size_t more = std::min(run.workers, run.total - std::min(run.total, run.next.load()));
    lock.unlock();
    for (size_t i = 0; i < more && tryEnterDevice(run); ++i) startWorker(run);
    lock.lock();
  }
}

}  // namespace

bool KernelRun::isCancelled() const { return device.fault.load(std::memory_order_relaxed) != cudaSuccess; }

void KernelRun::askForWorkers() {
  if (!hasUnstarted() || polls.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex);
  polls.store(true);
  changed.notify_all();
}

void copyArguments(KernelLaunch& launch, void* const* arguments) {
  const shim::KernelTwin& twin = *launch.twin;
  std::vector<size_t> offsets;
  size_t bytes = 0;
  for (uint32_t i = 0; i < twin.argumentCount; ++i) {
    const size_t alignment = twin.argumentAlignments[i];
    bytes = (bytes + alignment - 1) / alignment * alignment;
    offsets.push_back(bytes);
    bytes += twin.argumentBytes[i];
  }
  constexpr size_t kMostAlignment = 256;
  launch.storage = std::make_unique<std::byte[]>(bytes + kMostAlignment);
  const auto address = reinterpret_cast<uintptr_t>(launch.storage.get());
  std::byte* base = launch.storage.get() + (kMostAlignment - address % kMostAlignment) % kMostAlignment;
  launch.arguments.clear();
  for (uint32_t i = 0; i < twin.argumentCount; ++i) {
    std::memcpy(base + offsets[i], arguments[i], twin.argumentBytes[i]);
    launch.arguments.push_back(base + offsets[i]);
  }
}

void runBlocks(KernelRun& run) {
  const int callersDevice = currentDevice();
  setCurrentDevice(run.device.index);
  BlockRunner* used = nullptr;
  try {
    BlockRunner& runner = threadRunner();
    used = &runner;
    {
      const std::lock_guard lock(run.mutex);
      run.runners.push_back(&runner);
    }
    while (!run.isCancelled()) {
      const size_t block = run.next.fetch_add(1, std::memory_order_relaxed);
      if (block >= run.total) break;
      runner.run(run, block);
      run.finished.fetch_add(1, std::memory_order_relaxed);
    }
  } catch (const std::bad_alloc&) {
    failDevice(run.device, cudaErrorMemoryAllocation,
               fmt::format("kernel {}: no memory for its blocks", run.launch.name));
  }
  setCurrentDevice(callersDevice);
  leaveDevice(run);
  // The last use of the run: the waiting thread may go on at once.
  const std::lock_guard lock(run.mutex);
  std::erase(run.runners, used);
  if (--run.workers == 0) run.changed.notify_all();
}

void runKernel(const KernelLaunch& launch, Device& device) {
  KernelRun run(launch, device);
  if (run.isCancelled()) return;
  const Listed listed(run);
  sanitizer::release(&run.order[0]);
  if (run.total > 1) {
    superviseGrid(run);
  } else if (enterDevice(run, 1)) {
    run.workers = 1;
    runBlocks(run);
  }
  sanitizer::acquire(&run.order[1]);
}

void failDevice(Device& device, cudaError_t error, const std::string& message) {
  cudaError_t none = cudaSuccess;
  if (device.fault.compare_exchange_strong(none, error)) warn("device {}: {}", device.index, message);
}

std::string describeKernels() {
  std::string text;
  const std::lock_guard lock(runningKernels().mutex);
  for (KernelRun* run : runningKernels().runs) {
    const std::lock_guard runLock(run->mutex);
    const size_t started = std::min(run->next.load(), run->total);
    text += fmt::format(
        "kernel {} on device {}: {} blocks of {} threads, {} done, {} running, {} not begun\n",
        run->launch.name, run->device.index, run->total, run->launch.threads(), run->finished.load(),
        started - std::min(started, run->finished.load()), run->total - started);
    for (const BlockRunner* runner : run->runners) runner->describe(text);
  }
  return text;
}

}  // namespace tutti::hostrt
