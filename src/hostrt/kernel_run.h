// Kernels on their way: what is launched, and its run on this machine's threads.
//
//   stream's worker          block workers (OS threads, of a pool)
//   runKernel ---- starts --> take the next block, run it, until none is left
//             <--- waits ---
//
// A grid of one block runs on the stream's worker. A larger one starts with as many workers as the machine
// has processors. When no block ends for a moment, or one polls, there are more workers, up to what the
// device holds: blocks may wait for each other, as on a GPU, as long as they are resident at the same time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hostrt/kernel_registry.h"

namespace tutti::hostrt {

class BlockRunner;
struct Device;

/// A launch with its own copy of the arguments. Immutable, so that a graph can repeat it.
struct KernelLaunch {
  const shim::KernelTwin* twin = nullptr;
  std::string name;
  const void* function = nullptr;  // as the program gave it
  dim3 grid;
  dim3 block;
  size_t dynamicShared = 0;
  bool isCooperative = false;
  std::unique_ptr<std::byte[]> storage;
  std::vector<void*> arguments;  // in storage

  size_t blocks() const { return size_t{grid.x} * grid.y * grid.z; }
  unsigned threads() const { return block.x * block.y * block.z; }
};

/// Copies the arguments as the twin's parameters are laid out.
void copyArguments(KernelLaunch& launch, void* const* arguments);

/// One execution of a launch.
struct KernelRun {
  KernelRun(const KernelLaunch& l, Device& d) : launch(l), device(d), total(l.blocks()) {}

  const KernelLaunch& launch;
  Device& device;
  const size_t total;
  std::atomic<size_t> next{0};      // block to start
  std::atomic<size_t> finished{0};  // blocks
  std::atomic<bool> polls{false};   // a block waits for something outside of it
  char order[2] = {};               // for ThreadSanitizer: what came before the kernel, and what comes after

  std::mutex mutex;
  std::condition_variable changed;
  size_t workers = 0;                 // that may still touch the run
  std::vector<BlockRunner*> runners;  // for reports

  bool isCancelled() const;
  bool hasUnstarted() const { return next.load(std::memory_order_relaxed) < total; }
  /// From a block that polls: the others must get a chance.
  void askForWorkers();
};

/// Runs the kernel in the calling thread's place in the stream. Returns when it is done, or when the device
/// has failed.
void runKernel(const KernelLaunch& launch, Device& device);

/// A worker's part of a run: blocks until none is left.
void runBlocks(KernelRun& run);

/// Makes the device's error (the first one stays) and says why.
void failDevice(Device& device, cudaError_t error, const std::string& message);

/// What all kernels that run are doing: one line per kernel, block and group of threads.
std::string describeKernels();

}  // namespace tutti::hostrt
