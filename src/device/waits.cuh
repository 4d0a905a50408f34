// Waiting: every loop that polls asks Spin whether to go on. It looks at the communicator's abort flag, and
// says where the block stands when a wait has lasted long. And reports of what cannot go on.
#pragma once

#include "device/lane.cuh"

namespace tutti::device::TUTTI_KERNELS {

/// The abort flag lies in host memory, far from a GPU.
constexpr uint32_t kPollsPerLook = 64;
/// In ticks.
constexpr uint64_t kLongWait = 100'000'000;

class Spin {
 public:
  TUTTI_DEVICE Spin(const LaneView& lane, WaitFor what, int32_t peer, uint32_t flag = 0)
      : lane_(lane), what_(what), peer_(peer), flag_(flag) {}

  /// After each poll without success. False when the communicator is aborted: leave.
  TUTTI_DEVICE bool again() {
    if (++polls_ % kPollsPerLook != 0) return true;
    if (loadRelaxed(lane_.comm().abort) != 0) return false;
    const uint64_t now = ticks();
    if (began_ == 0) began_ = now;
    if (now - began_ > kLongWait && !reports_) report();
    return true;
  }
  /// After success.
  TUTTI_DEVICE void end() {
    if (!reports_) return;
    storeRelease(&position()->waits, 0u);
    atomicExch(&lane_.shared.reporter, 0u);
  }

 private:
  TUTTI_DEVICE Position* position() const { return &lane_.comm().report->positions[blockIdx.x]; }

  /// One thread of the block reports. Relaxed: the host may read it half written, it is for people.
  TUTTI_DEVICE void report() {
    if (blockIdx.x >= kMostPositions || atomicCAS(&lane_.shared.reporter, 0u, threadIdx.x + 1) != 0) return;
    reports_ = true;
    Position* p = position();
    storeRelaxed(static_cast<uint32_t*>(static_cast<void*>(&p->peer)), static_cast<uint32_t>(peer_));
    storeRelaxed(&p->call, lane_.shared.callNumber);
    storeRelaxed(&p->channel, lane_.channel());
    storeRelaxed(&p->lane, lane_.shared.lane);
    storeRelaxed(&p->step, lane_.cursor.step);
    storeRelaxed(&p->iteration, static_cast<uint32_t>(lane_.cursor.iteration));
    storeRelaxed(&p->flag, flag_);
    storeRelaxed(&p->slice, lane_.cursor.slice);
    storeRelease(&p->waits, static_cast<uint32_t>(what_));
  }

  const LaneView& lane_;
  WaitFor what_;
  int32_t peer_;
  uint32_t flag_;
  uint32_t polls_ = 0;
  uint64_t began_ = 0;
  bool reports_ = false;
};

/// Until *counter is more than `count`. Acquire: what its writer did before is seen. Gives the value seen; 0
/// when the communicator is aborted.
TUTTI_DEVICE uint64_t waitBeyond(const uint64_t* counter, uint64_t count, Spin& spin) {
  for (;;) {
    const uint64_t value = loadAcquire(counter);
    if (value > count) {
      spin.end();
      return value;
    }
    if (!spin.again()) return 0;
  }
}

/// A message whose size is not the expected one. The first report of the communicator stays.
TUTTI_DEVICE void reportSize(const LaneView& lane, int32_t peer, uint64_t got, uint64_t expected) {
  Report* report = lane.comm().report;
  if (!claim(&report->claimed, 1)) return;
  report->peer = peer;
  report->channel = lane.channel();
  report->lane = lane.shared.lane;
  report->step = lane.cursor.step;
  report->got = got;
  report->expected = expected;
  storeRelease(&report->error, static_cast<uint32_t>(ErrorCode::wrongSize));
}

}  // namespace tutti::device::TUTTI_KERNELS
