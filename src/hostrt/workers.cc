#include "hostrt/workers.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "hostrt/process.h"

namespace tutti::hostrt {
namespace {

constexpr auto kIdleTime = std::chrono::seconds(2);

struct Worker {
  std::condition_variable wake;
  Stream* stream = nullptr;  // to run next
  Worker* nextIdle = nullptr;
};

struct Pool {
  std::mutex mutex;
  Worker* idle = nullptr;  // last in, first out: the others can time out
};

Pool& pool() {
  static auto* instance = new Pool;
  return *instance;
}

void removeFromIdle(Pool& workers, const Worker* worker) {
  for (Worker** link = &workers.idle; *link; link = &(*link)->nextIdle) {
    if (*link != worker) continue;
    *link = worker->nextIdle;
    return;
  }
}

/// Waits for a stream in the list of idle workers. False when none came.
bool awaitStream(Worker& self) {
  Pool& workers = pool();
  std::unique_lock lock(workers.mutex);
  self.nextIdle = workers.idle;
  workers.idle = &self;
  self.wake.wait_for(lock, kIdleTime, [&] { return self.stream != nullptr; });
  if (self.stream) return true;
  removeFromIdle(workers, &self);
  return false;
}

void* runWorker(void* first) {
  ::pthread_setname_np(::pthread_self(), "tutti-stream");
  Worker self;
  self.stream = static_cast<Stream*>(first);
  do {
    Stream* stream = self.stream;
    self.stream = nullptr;
    stream->drain();
    parkIfExiting();
  } while (awaitStream(self));
  return nullptr;
}

}  // namespace

bool startDetached(void* (*body)(void*), void* argument) {
  pthread_attr_t attributes;
  if (::pthread_attr_init(&attributes) != 0) return false;
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t all;
  sigset_t old;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &old);
  pthread_t thread;
  const int error = ::pthread_create(&thread, &attributes, body, argument);
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
  ::pthread_attr_destroy(&attributes);
  return error == 0;
}

void giveToWorker(Stream& stream) {
  Pool& workers = pool();
  {
    const std::lock_guard lock(workers.mutex);
    if (Worker* worker = workers.idle) {
      workers.idle = worker->nextIdle;
      worker->stream = &stream;
      // Under the lock: without it the worker could see the stream, run it and end before it is notified.
      worker->wake.notify_one();
      return;
    }
  }
  if (!startDetached(runWorker, &stream)) stream.drain();
}

void forgetWorkers() { new (&pool()) Pool; }

}  // namespace tutti::hostrt
