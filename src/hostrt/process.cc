#include "hostrt/process.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "hostrt/api.h"

namespace tutti::hostrt {
namespace {

std::atomic<bool> exiting{false};
std::atomic<bool> unusableFork{false};

__attribute__((destructor)) void noteExit() { exiting.store(true, std::memory_order_release); }

}  // namespace

bool isExiting() { return exiting.load(std::memory_order_acquire); }

void parkIfExiting() {
  while (isExiting()) ::pause();
}

bool isUnusableFork() { return unusableFork.load(std::memory_order_relaxed); }

void watchForks() {
  static std::once_flag once;
  std::call_once(once, [] {
    ::pthread_atfork(nullptr, nullptr, [] { unusableFork.store(true, std::memory_order_relaxed); });
  });
}

}  // namespace tutti::hostrt
