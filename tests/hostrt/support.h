// What the tests of the host runtime share.
#pragma once

#include <cuda_runtime.h>
#include <dirent.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

#include "base/host_runtime.h"
#include "support/command.h"

extern "C" const tuttiHostRuntime_v1* tuttiHostRuntime_v1_get(void);

inline const tuttiHostRuntime_v1& table() { return *tuttiHostRuntime_v1_get(); }

#define ASSERT_CUDA(call) ASSERT_EQ(call, cudaSuccess)
#define EXPECT_CUDA(call) EXPECT_EQ(call, cudaSuccess)

/// Holds a stream's worker until it is opened.
class Gate {
 public:
  ~Gate() { open(); }
  void open() {
    const std::lock_guard lock(mutex_);
    isOpen_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return isOpen_; });
  }
  void awaitReached() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_; });
  }
  /// As a host function.
  static void run(void* gate) { static_cast<Gate*>(gate)->pass(); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool isOpen_ = false;
  bool reached_ = false;
};

/// Enqueues a gate: what comes after it on the stream waits until it is opened.
inline void block(cudaStream_t stream, Gate& gate) {
  ASSERT_CUDA(cudaLaunchHostFunc(stream, Gate::run, &gate));
}

inline void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

/// All `bytes` bytes are `value`. (One memcmp: sanitizers slow loops over megabytes down a hundredfold.)
inline bool isFilled(const void* memory, size_t bytes, int value) {
  const auto* first = static_cast<const unsigned char*>(memory);
  return first[0] == static_cast<unsigned char>(value) && std::memcmp(first, first + 1, bytes - 1) == 0;
}

inline int entriesIn(const char* folder) {
  int count = 0;
  DIR* dir = ::opendir(folder);
  if (!dir) return -1;
  while (::readdir(dir)) ++count;
  ::closedir(dir);
  return count;
}
inline int openDescriptors() { return entriesIn("/proc/self/fd"); }
inline int threads() { return entriesIn("/proc/self/task"); }

using tutti::test::Outcome;
using tutti::test::runCommand;

#ifdef HOSTRT_HELPER
inline Outcome runHelper(const std::string& arguments, const std::string& environment = "") {
  return runCommand(environment + " timeout 100 " HOSTRT_HELPER " " + arguments);
}
#endif
