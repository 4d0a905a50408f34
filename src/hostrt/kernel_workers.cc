#include "hostrt/kernel_workers.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "hostrt/kernel_run.h"
#include "hostrt/process.h"
#include "hostrt/workers.h"

namespace tutti::hostrt {
namespace {

constexpr auto kIdleBlockWorker = std::chrono::seconds(2);

struct BlockWorker {
  std::condition_variable wake;
  KernelRun* run = nullptr;
  BlockWorker* nextIdle = nullptr;
};

struct BlockPool {
  std::mutex mutex;
  BlockWorker* idle = nullptr;  // last in, first out: its caches are warm, and the others can end
};

BlockPool& blockPool() {
  static auto* instance = new BlockPool;
  return *instance;
}

bool awaitRun(BlockWorker& self) {
  BlockPool& pool = blockPool();
  std::unique_lock lock(pool.mutex);
  self.nextIdle = pool.idle;
  pool.idle = &self;
  self.wake.wait_for(lock, kIdleBlockWorker, [&] { return self.run != nullptr; });
  if (self.run) return true;
  for (BlockWorker** link = &pool.idle; *link; link = &(*link)->nextIdle)
    if (*link == &self) {
      *link = self.nextIdle;
      break;
    }
  return false;
}

void* runBlockWorker(void* first) {
  ::pthread_setname_np(::pthread_self(), "tutti-block");
  BlockWorker self;
  self.run = static_cast<KernelRun*>(first);
  do {
    runBlocks(*std::exchange(self.run, nullptr));
    parkIfExiting();
  } while (awaitRun(self));
  return nullptr;
}

}  // namespace

bool giveToBlockWorker(KernelRun& run) {
  BlockPool& pool = blockPool();
  {
    const std::lock_guard lock(pool.mutex);
    if (BlockWorker* worker = pool.idle) {
      pool.idle = worker->nextIdle;
      worker->run = &run;
      worker->wake.notify_one();  // under the lock: the worker could otherwise end before
      return true;
    }
  }
  return startDetached(runBlockWorker, &run);
}

BlockRunner& threadRunner() {
  thread_local std::unique_ptr<BlockRunner> runner;
  if (!runner) runner = std::make_unique<BlockRunner>();
  return *runner;
}

void forgetBlockWorkers() { new (&blockPool()) BlockPool; }

}  // namespace tutti::hostrt
