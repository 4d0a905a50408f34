// One block, on the calling OS thread: its CUDA threads take turns.
//
// A thread runs until it waits (barrier, warp operation), polls or ends. The next one is chosen by masks:
// `ready` lanes of the same warp first, then those of the next warps. Threads that poll are set aside until
// no other is ready. A thread gets a stack when it begins; one that ends passes its stack to the next that
// begins, so a kernel without barriers runs as a loop on a single stack.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/kernel_shim/abi.h"
#include "hostrt/api.h"
#include "hostrt/kernel_context.h"
#include "hostrt/kernel_limits.h"

namespace tutti::hostrt {

struct KernelRun;

class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  /// Runs a block of the kernel to its end, or until the device fails.
  void run(KernelRun& kernel, size_t block);
  /// Where the block's threads stand. From any thread; what changes meanwhile may be missed.
  void describe(std::string& text) const;

 private:
  enum class State : uint8_t { unstarted, running, barrier, warp, polling, ended };
  struct Fiber : shim::Thread {
    BlockRunner* runner = nullptr;
    KernelStack* stack = nullptr;
    Context context;
    void* fakeStack = nullptr;  // of AddressSanitizer
    void* tsan = nullptr;       // of ThreadSanitizer; kept from block to block, and its stack with it
    bool hasBegun = false;
    // For reports: read by other threads.
    std::atomic<State> state{State::unstarted};
    std::atomic<const char*> file{nullptr};
    std::atomic<const char*> what{nullptr};
    std::atomic<uint32_t> line{0};
    std::atomic<uint32_t> mask{0};
  };
  struct Barrier {
    uint32_t arrived = 0;
    uint32_t expected = 0;  // 0: all that have not ended
    shim::BlockVote vote = shim::BlockVote::none;
    uint32_t value = 0;
    uint32_t result = 0;
    uint32_t phase = 0;
    std::array<uint32_t, 32> waiting{};
    char order[2] = {};  // for ThreadSanitizer: phases alternate
  };
  struct Warp {
    uint32_t exists = 0;
    uint32_t ended = 0;
    uint32_t ready = 0;
    uint32_t polling = 0;
    uint32_t arrived = 0;
    uint32_t generation = 0;
    std::array<shim::WarpCall*, 32> calls{};
    char order[4] = {};
  };

  static BlockRunner& of(shim::Thread& self) { return *static_cast<Fiber&>(self).runner; }
  static void yield(shim::Thread& self, const shim::Place& place);
  static void sleep(shim::Thread& self, unsigned nanoseconds, const shim::Place& place);
  static uint32_t barrier(shim::Thread& self, uint32_t id, uint32_t threads, shim::BlockVote vote,
                          uint32_t predicate, const shim::Place& place);
  static void warp(shim::Thread& self, shim::WarpCall& call);
  static void fault(shim::Thread& self, int error, const char* text, const shim::Place& place);
  static uint32_t activeMask(const shim::Thread& self);
  static const shim::Engine kEngine;

  void prepare(KernelRun& kernel, size_t block);
  void prepareShared(size_t bytes);
  /// After a failure: threads that did not end are forgotten, with what stands on their stacks.
  void abandon();
  void prepareForThreadSanitizer();
  void mergePolling();
  void stand(Fiber& fiber, State state, const shim::Place& place);
  /// Lets others run; returns when the fiber's turn comes. Never returns when the block has ended.
  void suspend(Fiber& fiber);
  Fiber* pick();
  Fiber* takeReady(uint32_t warp);
  /// All threads that could run poll: other OS threads get the processor.
  void idle();
  /// Begins the thread unless it has. False when there is no memory for its stack.
  bool prepareStack(Fiber& fiber);
  void begin(Fiber& fiber);
  void end(Fiber& fiber);
  void release(Barrier& barrier);
  bool tryComplete(Warp& warp, const shim::WarpCall& call);
  void setCurrent(Fiber& fiber);
  void makeReady(uint32_t warp, uint32_t lanes);
  void reportDeadlock();
  std::string position() const;
  [[noreturn]] void leave(Fiber& fiber);
  void goTo(Fiber& to, Context& from, void** fakeStack);
  static void enterFiber(void* runner);
  [[noreturn]] void runFibers();

  shim::Block block_{};
  KernelRun* kernel_ = nullptr;
  const std::atomic<cudaError_t>* fault_ = nullptr;  // of the device
  std::atomic<bool> isActive_{false};
  shim::Slots slots_{};  // of the running kernel's module
  std::unique_ptr<Fiber[]> fibers_;
  uint32_t threads_ = 0;
  uint32_t live_ = 0;  // not ended
  uint32_t warps_ = 0;
  uint32_t readyWarps_ = 0;
  uint32_t pollingWarps_ = 0;
  uint32_t currentWarp_ = 0;
  uint32_t patience_ = 0;  // turns until other warps come first
  uint32_t idleRounds_ = 0;
  uint64_t lastIdle_ = 0;  // nanoseconds
  uint32_t sleepHint_ = 0;
  std::array<Warp, 32> warpStates_;
  std::array<Barrier, 16> barriers_;
  Fiber* running_ = nullptr;
  // For ThreadSanitizer: what came before the block, and what its threads did. Blocks that follow each other
  // on an OS thread are ordered, as they use the same memory for what is __shared__.
  char order_[2] = {};
  StackPool stacks_;
  void* dynamicShared_ = nullptr;  // exactly as long as asked for, so that AddressSanitizer sees overruns
  size_t dynamicSharedBytes_ = 0;
  Context main_;
  void* mainFakeStack_ = nullptr;
  const void* mainBottom_ = nullptr;
  size_t mainBytes_ = 0;
  void* mainFiber_ = nullptr;
};

}  // namespace tutti::hostrt
