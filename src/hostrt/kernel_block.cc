#include "hostrt/kernel_block.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

#include "hostrt/device.h"
#include "hostrt/kernel_run.h"
#include "hostrt/kernel_sanitizers.h"
#include "hostrt/log.h"
#include "hostrt/process.h"

namespace tutti::hostrt {
namespace {

using shim::BlockVote;
using shim::Place;
using shim::WarpCall;
using shim::WarpOp;

constexpr uint32_t kPatience = 256;
constexpr size_t kSharedAlignment = 128;

uint64_t nanoseconds() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

void sleepFor(uint32_t ns) {
  const timespec time = {0, static_cast<long>(ns)};
  ::nanosleep(&time, nullptr);
}

uint32_t lowestLane(uint32_t lanes) { return static_cast<uint32_t>(std::countr_zero(lanes)); }
uint32_t bit(uint32_t lane) { return 1u << lane; }

/// The lane that `lane` reads from in a shuffle: its own where there is none.
uint32_t sourceLane(const WarpCall& call, uint32_t lane) {
  const uint32_t width = std::clamp<uint32_t>(call.width, 1, kWarpSize);
  const uint32_t first = lane & ~(width - 1);
  switch (call.op) {
    case WarpOp::broadcast:
      return first | (call.argument & (width - 1));
    case WarpOp::up:
      return lane - first >= call.argument ? lane - call.argument : lane;
    case WarpOp::down:
      return call.argument < width && lane + call.argument < first + width ? lane + call.argument : lane;
    case WarpOp::exclusive: {
      const uint32_t other = lane ^ call.argument;
      return other < first + width ? other : lane;
    }
    default:
      return lane;
  }
}

uint64_t combine(WarpOp op, uint64_t a, uint64_t b) {
  const auto x = static_cast<int32_t>(a);
  const auto y = static_cast<int32_t>(b);
  switch (op) {
    case WarpOp::add:
      return static_cast<uint32_t>(a + b);
    case WarpOp::min:
      return std::min(a, b);
    case WarpOp::max:
      return std::max(a, b);
    case WarpOp::minSigned:
      return static_cast<uint32_t>(std::min(x, y));
    case WarpOp::maxSigned:
      return static_cast<uint32_t>(std::max(x, y));
    case WarpOp::bitAnd:
      return a & b;
    case WarpOp::bitXor:
      return a ^ b;
    default:
      return a | b;
  }
}

template <class Body>
void forLanes(uint32_t lanes, Body&& body) {
  for (; lanes; lanes &= lanes - 1) body(lowestLane(lanes));
}

/// What the operation gives every lane: for those that answer all the same.
uint64_t commonResult(WarpOp op, uint32_t lanes, const std::array<WarpCall*, 32>& calls) {
  uint64_t result = calls[lowestLane(lanes)]->value;
  uint32_t set = 0;
  bool isSame = true;
  forLanes(lanes, [&](uint32_t lane) {
    const uint64_t value = calls[lane]->value;
    if (value) set |= bit(lane);
    isSame = isSame && value == calls[lowestLane(lanes)]->value;
    if (lane != lowestLane(lanes)) result = combine(op, result, value);
  });
  switch (op) {
    case WarpOp::ballot:
      return set;
    case WarpOp::any:
      return set != 0;
    case WarpOp::all:
      return set == lanes;
    case WarpOp::matchAll:
      return isSame ? lanes : 0;
    default:
      return result;
  }
}

void computeResults(uint32_t lanes, const std::array<WarpCall*, 32>& calls) {
  const WarpOp op = calls[lowestLane(lanes)]->op;
  if (op == WarpOp::sync) return;
  if (op <= WarpOp::exclusive) {
    forLanes(lanes, [&](uint32_t lane) {
      const uint32_t source = sourceLane(*calls[lane], lane);
      calls[lane]->result = lanes & bit(source) ? calls[source]->value : calls[lane]->value;
    });
  } else if (op == WarpOp::matchAny) {
    forLanes(lanes, [&](uint32_t lane) {
      uint32_t same = 0;
      forLanes(lanes, [&](uint32_t other) {
        if (calls[other]->value == calls[lane]->value) same |= bit(other);
      });
      calls[lane]->result = same;
    });
  } else {
    const uint64_t result = commonResult(op, lanes, calls);
    forLanes(lanes, [&](uint32_t lane) { calls[lane]->result = result; });
  }
}

}  // namespace

const shim::Engine BlockRunner::kEngine = {
    sizeof(shim::Engine), yield, sleep, barrier, warp, fault, activeMask};

BlockRunner::BlockRunner() : fibers_(std::make_unique<Fiber[]>(kThreadsPerBlock)) {
  for (uint32_t i = 0; i < kThreadsPerBlock; ++i) fibers_[i].runner = this;
}

BlockRunner::~BlockRunner() {
  for (uint32_t i = 0; i < kThreadsPerBlock; ++i)
    if (fibers_[i].tsan) sanitizer::destroyFiber(fibers_[i].tsan);
  std::free(dynamicShared_);
}

// ---- a block from begin to end

void BlockRunner::run(KernelRun& kernel, size_t block) {
  prepare(kernel, block);
  Fiber* first = pick();
  if (first && prepareStack(*first)) {
    mainFiber_ = sanitizer::currentFiber();
    mainBottom_ = nullptr;
    goTo(*first, main_, &mainFakeStack_);
  }
  *slots_.current = nullptr;
  isActive_.store(false, std::memory_order_relaxed);
  sanitizer::acquire(&order_[1]);
  if (live_ > 0) abandon();
  if (stacks_.wereOverrun())
    failDevice(kernel.device, cudaErrorLaunchFailure,
               fmt::format("kernel {}: a thread of block ({},{},{}) overran its stack of {} bytes; "
                           "cudaDeviceSetLimit(cudaLimitStackSize, ...) makes stacks larger",
                           kernel.launch.name, block_.blockIdx.x, block_.blockIdx.y, block_.blockIdx.z,
                           kernelStackBytes()));
}

void BlockRunner::prepare(KernelRun& kernel, size_t block) {
  const KernelLaunch& launch = kernel.launch;
  kernel_ = &kernel;
  fault_ = &kernel.device.fault;
  slots_ = launch.twin->slots();
  prepareShared(launch.dynamicShared);
  const auto row = static_cast<unsigned>(block / launch.grid.x);
  block_.engine = &kEngine;
  block_.blockIdx = {static_cast<unsigned>(block % launch.grid.x), row % launch.grid.y, row / launch.grid.y};
  block_.blockDim = launch.block;
  block_.gridDim = launch.grid;
  *slots_.blockIdx = block_.blockIdx;
  *slots_.blockDim = block_.blockDim;
  *slots_.gridDim = block_.gridDim;
  block_.dynamicShared = dynamicShared_;
  block_.dynamicSharedBytes = static_cast<uint32_t>(launch.dynamicShared);
  block_.multiprocessor = static_cast<uint32_t>(block % kMultiprocessors);
  threads_ = live_ = launch.threads();
  warps_ = (threads_ + kWarpSize - 1) / kWarpSize;
  readyWarps_ = pollingWarps_ = 0;
  for (uint32_t w = 0; w < warps_; ++w) {
    Warp& warp = warpStates_[w];
    const uint32_t lanes = std::min(kWarpSize, threads_ - w * kWarpSize);
    warp.exists = lanes == kWarpSize ? ~0u : bit(lanes) - 1;
    warp.ended = warp.polling = warp.arrived = 0;
    makeReady(w, warp.ready = warp.exists);
  }
  for (Barrier& barrier : barriers_) {
    barrier.arrived = 0;
    barrier.waiting.fill(0);
  }
  for (uint32_t i = 0; i < threads_; ++i) {
    fibers_[i].state.store(State::unstarted, std::memory_order_relaxed);
    fibers_[i].hasBegun = false;
  }
  if (sanitizer::kSeesThreads) prepareForThreadSanitizer();
  currentWarp_ = 0;
  patience_ = kPatience;
  idleRounds_ = sleepHint_ = 0;
  lastIdle_ = 0;
  isActive_.store(true, std::memory_order_relaxed);
}

void BlockRunner::prepareForThreadSanitizer() {
  // Here and not when a thread begins: who makes a fiber, or allocates, is ordered before it.
  for (uint32_t i = 0; i < threads_; ++i) {
    if (!fibers_[i].tsan) fibers_[i].tsan = sanitizer::createFiber();
    if (!fibers_[i].stack) fibers_[i].stack = stacks_.take();
  }
  sanitizer::release(&order_[0]);
}

void BlockRunner::prepareShared(size_t bytes) {
  if (bytes == dynamicSharedBytes_) return;
  std::free(dynamicShared_);
  dynamicShared_ = nullptr;
  dynamicSharedBytes_ = 0;
  if (bytes > 0 && ::posix_memalign(&dynamicShared_, kSharedAlignment, bytes) != 0) throw std::bad_alloc();
  dynamicSharedBytes_ = bytes;
}

void BlockRunner::abandon() {
  for (uint32_t i = 0; i < threads_; ++i) {
    Fiber& fiber = fibers_[i];
    if (!fiber.hasBegun || fiber.state.load(std::memory_order_relaxed) == State::ended) continue;
    sanitizer::unpoison(fiber.stack->bottom, fiber.stack->bytes);
    if (sanitizer::kSeesThreads) {
      sanitizer::switchToFiber(fiber.tsan);
      sanitizer::release(&order_[1]);
      sanitizer::switchToFiber(mainFiber_);
      sanitizer::destroyFiber(std::exchange(fiber.tsan, nullptr));
    } else {
      stacks_.give(std::exchange(fiber.stack, nullptr));
    }
  }
  sanitizer::acquire(&order_[1]);
  live_ = 0;
}

bool BlockRunner::prepareStack(Fiber& fiber) {
  if (fiber.hasBegun) return true;
  try {
    if (!fiber.stack) fiber.stack = stacks_.take();
  } catch (const std::bad_alloc&) {
    failDevice(kernel_->device, cudaErrorMemoryAllocation,
               fmt::format("kernel {}: no memory for the stack of a thread", kernel_->launch.name));
    return false;
  }
  begin(fiber);
  makeContext(fiber.context, fiber.stack->bottom, fiber.stack->top, enterFiber, this);
  return true;
}

void BlockRunner::begin(Fiber& fiber) {
  const auto index = static_cast<uint32_t>(&fiber - fibers_.get());
  fiber.block = &block_;
  const uint32_t row = index / block_.blockDim.x;
  fiber.threadIdx = {index % block_.blockDim.x, row % block_.blockDim.y, row / block_.blockDim.y};
  fiber.lane = index % kWarpSize;
  fiber.warp = index / kWarpSize;
  fiber.polls = 0;
  fiber.note = nullptr;
  fiber.noteValue = 0;
  fiber.hasBegun = true;
}

void BlockRunner::end(Fiber& fiber) {
  sanitizer::release(&kernel_->order[1]);
  sanitizer::release(&order_[1]);
  fiber.state.store(State::ended, std::memory_order_relaxed);
  warpStates_[fiber.warp].ended |= bit(fiber.lane);
  --live_;
  idleRounds_ = 0;
  for (Barrier& barrier : barriers_)
    if (barrier.arrived > 0 && barrier.expected == 0 && barrier.arrived == live_) release(barrier);
}

void BlockRunner::setCurrent(Fiber& fiber) {
  running_ = &fiber;
  *slots_.current = &fiber;
  *slots_.threadIdx = fiber.threadIdx;
  fiber.state.store(State::running, std::memory_order_relaxed);
}

void BlockRunner::goTo(Fiber& to, Context& from, void** fakeStack) {
  setCurrent(to);
  sanitizer::startSwitch(fakeStack, to.stack->bottom, to.stack->bytes);
  sanitizer::switchToFiber(to.tsan);
  switchContext(from, to.context);
  sanitizer::finishSwitch(fakeStack ? *fakeStack : nullptr, nullptr, nullptr);
}

void BlockRunner::enterFiber(void* runner) {
  auto& self = *static_cast<BlockRunner*>(runner);
  const void* bottom = nullptr;
  size_t bytes = 0;
  sanitizer::finishSwitch(nullptr, &bottom, &bytes);
  if (!self.mainBottom_) {
    self.mainBottom_ = bottom;
    self.mainBytes_ = bytes;
  }
  self.runFibers();
}

void BlockRunner::runFibers() {
  for (;;) {
    Fiber& fiber = *running_;
    sanitizer::acquire(&kernel_->order[0]);
    sanitizer::acquire(&order_[0]);
    kernel_->launch.twin->invoke(kernel_->launch.arguments.data());
    end(fiber);
    Fiber* next = pick();
    if (sanitizer::kSeesThreads) {  // every thread has its own stack
      if (!next || !prepareStack(*next)) leave(fiber);
      goTo(*next, fiber.context, nullptr);
    }
    KernelStack* stack = std::exchange(fiber.stack, nullptr);
    if (next && !next->hasBegun) {
      next->stack = stack;
      begin(*next);
      setCurrent(*next);
      continue;
    }
    stacks_.give(stack);  // nobody takes it before the switch
    if (!next) leave(fiber);
    goTo(*next, fiber.context, nullptr);
  }
}

void BlockRunner::leave(Fiber& fiber) {
  sanitizer::startSwitch(nullptr, mainBottom_, mainBytes_);
  sanitizer::switchToFiber(mainFiber_);
  switchContext(fiber.context, main_);
  __builtin_unreachable();
}

// ---- whose turn it is

void BlockRunner::makeReady(uint32_t warp, uint32_t lanes) {
  if (!lanes) return;
  warpStates_[warp].ready |= lanes;
  readyWarps_ |= bit(warp);
}

void BlockRunner::mergePolling() {
  forLanes(pollingWarps_, [&](uint32_t w) { makeReady(w, std::exchange(warpStates_[w].polling, 0)); });
  pollingWarps_ = 0;
}

BlockRunner::Fiber* BlockRunner::takeReady(uint32_t w) {
  Warp& warp = warpStates_[w];
  const uint32_t lane = lowestLane(warp.ready);
  warp.ready &= ~bit(lane);
  if (!warp.ready) readyWarps_ &= ~bit(w);
  return &fibers_[w * kWarpSize + lane];
}

BlockRunner::Fiber* BlockRunner::pick() {
  while (live_ > 0 && fault_->load(std::memory_order_relaxed) == cudaSuccess) {
    if (patience_ == 0) mergePolling();  // a warp that talks to itself must not starve the others
    if (patience_ > 0 && warpStates_[currentWarp_].ready) {
      --patience_;
      return takeReady(currentWarp_);
    }
    if (readyWarps_) {
      const uint32_t later = readyWarps_ & ~((2u << currentWarp_) - 1);
      currentWarp_ = lowestLane(later ? later : readyWarps_);
      patience_ = kPatience;
      return takeReady(currentWarp_);
    }
    if (!pollingWarps_) {
      reportDeadlock();
      break;
    }
    idle();
    mergePolling();
  }
  return nullptr;
}

void BlockRunner::idle() {
  const uint64_t now = nanoseconds();
  // Long between two calls: a thread found what it polled for, and worked.
  if (now - lastIdle_ > 2000 + 300 * uint64_t{live_}) idleRounds_ = 0;
  if (idleRounds_++ % 64 == 0) kernel_->askForWorkers();
  parkIfExiting();
  if (sleepHint_ > 0) {
    sleepFor(std::min<uint32_t>(std::exchange(sleepHint_, 0), 1000000));
  } else if (idleRounds_ < 4) {
    for (int i = 0; i < 16; ++i) cpuRelax();
  } else if (idleRounds_ < 256) {
    ::sched_yield();
  } else {
    sleepFor(50000);
  }
  lastIdle_ = nanoseconds();
}

void BlockRunner::suspend(Fiber& fiber) {
  Fiber* next = pick();
  if (next == &fiber) {
    fiber.state.store(State::running, std::memory_order_relaxed);
    return;
  }
  if (!next || !prepareStack(*next)) leave(fiber);
  goTo(*next, fiber.context, &fiber.fakeStack);
}

void BlockRunner::stand(Fiber& fiber, State state, const Place& place) {
  fiber.file.store(place.file, std::memory_order_relaxed);
  fiber.line.store(place.line, std::memory_order_relaxed);
  fiber.what.store(place.what, std::memory_order_relaxed);
  fiber.state.store(state, std::memory_order_relaxed);
}

// ---- what kernels call

void BlockRunner::yield(shim::Thread& self, const Place& place) {
  BlockRunner& runner = of(self);
  auto& fiber = static_cast<Fiber&>(self);
  runner.stand(fiber, State::polling, place);
  runner.warpStates_[self.warp].polling |= bit(self.lane);
  runner.pollingWarps_ |= bit(self.warp);
  runner.suspend(fiber);
}

void BlockRunner::sleep(shim::Thread& self, unsigned ns, const Place& place) {
  BlockRunner& runner = of(self);
  runner.sleepHint_ = std::max(runner.sleepHint_, ns);
  yield(self, place);
}

uint32_t BlockRunner::barrier(shim::Thread& self, uint32_t id, uint32_t threads, BlockVote vote,
                              uint32_t predicate, const Place& place) {
  BlockRunner& runner = of(self);
  auto& fiber = static_cast<Fiber&>(self);
  if (id >= runner.barriers_.size())
    fault(self, cudaErrorLaunchFailure, "no barrier has that number (0 to 15)", place);
  if (threads > runner.threads_)
    fault(self, cudaErrorLaunchFailure, "the barrier is for more threads than the block has", place);
  Barrier& b = runner.barriers_[id];
  if (b.arrived == 0) {
    b.expected = threads;
    b.vote = vote;
    b.value = vote == BlockVote::all;
  } else if (b.expected != threads || b.vote != vote) {
    fault(self, cudaErrorLaunchFailure, "other threads wait at this barrier in another form or number",
          place);
  }
  if (vote == BlockVote::count) b.value += predicate;
  if (vote == BlockVote::all) b.value &= predicate;
  if (vote == BlockVote::any) b.value |= predicate;
  ++b.arrived;
  char* const order = &b.order[b.phase & 1];
  sanitizer::release(order);
  if (b.arrived == (threads ? threads : runner.live_)) {
    runner.release(b);
  } else {
    b.waiting[self.warp] |= bit(self.lane);
    runner.stand(fiber, State::barrier, place);
    runner.suspend(fiber);
  }
  sanitizer::acquire(order);
  return b.result;
}

void BlockRunner::release(Barrier& b) {
  b.result = b.value;
  b.arrived = 0;
  ++b.phase;
  idleRounds_ = 0;
  for (uint32_t w = 0; w < warps_; ++w) makeReady(w, std::exchange(b.waiting[w], 0));
}

void BlockRunner::warp(shim::Thread& self, WarpCall& call) {
  BlockRunner& runner = of(self);
  auto& fiber = static_cast<Fiber&>(self);
  Warp& w = runner.warpStates_[self.warp];
  if (!(call.mask & bit(self.lane)))
    fault(self, cudaErrorLaunchFailure, "the thread is not in the mask of its own warp operation",
          call.place);
  w.calls[self.lane] = &call;
  w.arrived |= bit(self.lane);
  char* const order = &w.order[w.generation & 3];
  const bool isSync = call.op == WarpOp::sync;  // the only one that orders memory
  if (isSync) sanitizer::release(order);
  if (!runner.tryComplete(w, call)) {
    fiber.mask.store(call.mask, std::memory_order_relaxed);
    runner.stand(fiber, State::warp, call.place);
    runner.suspend(fiber);
  } else {
    runner.makeReady(self.warp, call.mask & w.exists & ~bit(self.lane));
  }
  if (isSync) sanitizer::acquire(order);
}

bool BlockRunner::tryComplete(Warp& w, const WarpCall& call) {
  const uint32_t lanes = call.mask & w.exists;  // lanes that the block does not have count as there
  if (lanes & ~w.arrived) return false;
  bool isTogether = true;
  forLanes(lanes, [&](uint32_t lane) {
    isTogether = isTogether && w.calls[lane]->mask == call.mask && w.calls[lane]->op == call.op;
  });
  if (!isTogether) return false;
  computeResults(lanes, w.calls);
  w.arrived &= ~lanes;
  ++w.generation;
  return true;
}

uint32_t BlockRunner::activeMask(const shim::Thread& self) {
  const Warp& w = static_cast<const Fiber&>(self).runner->warpStates_[self.warp];
  return w.exists & ~w.ended;
}

void BlockRunner::fault(shim::Thread& self, int error, const char* text, const Place& place) {
  BlockRunner& runner = of(self);
  auto& fiber = static_cast<Fiber&>(self);
  failDevice(runner.kernel_->device, static_cast<cudaError_t>(error),
             fmt::format("kernel {} failed: {}: {}, thread ({},{},{}), {}:{}", runner.kernel_->launch.name,
                         text, runner.position(), self.threadIdx.x, self.threadIdx.y, self.threadIdx.z,
                         place.file, place.line));
  runner.leave(fiber);
}

// ---- reports

std::string BlockRunner::position() const {
  return fmt::format("block ({},{},{})", block_.blockIdx.x, block_.blockIdx.y, block_.blockIdx.z);
}

void BlockRunner::describe(std::string& text) const {
  if (!isActive_.load(std::memory_order_relaxed)) return;
  text += "  " + position() + "\n";
  const uint32_t count = std::min(threads_, kThreadsPerBlock);
  const auto lineOf = [&](uint32_t i) -> std::string {
    const Fiber& f = fibers_[i];
    const char* file = f.file.load(std::memory_order_relaxed);
    const char* what = f.what.load(std::memory_order_relaxed);
    const auto at = [&](const char* verb) {
      return fmt::format("{} {}, {}:{}", verb, what ? what : "?", file ? file : "?",
                         f.line.load(std::memory_order_relaxed));
    };
    std::string line = "are running";
    switch (f.state.load(std::memory_order_relaxed)) {
      case State::unstarted:
        line = "have not begun";
        break;
      case State::running:
        break;
      case State::barrier:
        line = at("wait at");
        break;
      case State::warp:
        line = at("wait at") + fmt::format(" with mask {:#x}", f.mask.load(std::memory_order_relaxed));
        break;
      case State::polling:
        line = at("poll in");
        break;
      case State::ended:
        return "have ended";
    }
    if (f.note) line += fmt::format(" ({} {})", f.note, f.noteValue);
    return line;
  };
  for (uint32_t i = 0; i < count;) {
    const std::string line = lineOf(i);
    uint32_t last = i;
    while (last + 1 < count && lineOf(last + 1) == line) ++last;
    text += last == i ? fmt::format("    thread {}: {}\n", i, line)
                      : fmt::format("    threads {} to {}: {}\n", i, last, line);
    i = last + 1;
  }
}

void BlockRunner::reportDeadlock() {
  std::string text;
  describe(text);
  if (!text.empty()) text.pop_back();
  failDevice(kernel_->device, cudaErrorLaunchFailure,
             fmt::format("kernel {} is deadlocked: no thread of the block can go on\n{}",
                         kernel_->launch.name, text));
  sanitizer::release(&kernel_->order[1]);
  sanitizer::release(&order_[1]);
}

}  // namespace tutti::hostrt
