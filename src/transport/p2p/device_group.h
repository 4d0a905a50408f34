// Ranks of one process whose kernels see each other's memory: who they are, where their segments are, and the
// connections between them.
//
//   rank 0 (device 0)                          rank 1 (device 1)
//   segment: flags, boards, scratch   <----->  segment           by peer access (NVLink, PCIe)
//   connections to rank 0: slots               connections to rank 1: slots
//
// Where two devices of the group cannot reach each other (or NCCL_P2P_LEVEL, NCCL_P2P_DISABLE forbid it), the
// whole group is *staged*: segments and connections lie in pinned host memory, which all devices see, and
// users' buffers are not used directly.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/device_program.h"
#include "base/fault_state.h"
#include "base/status.h"
#include "device/driver.h"

namespace tutti {

struct DeviceGroupOptions {
  device::SegmentLayout layout;
  size_t slotBytes = 0;        // of protocol Simple
  uint32_t linesOfSlotLL = 0;  // see device::Comm
  uint32_t linesOfSlotLL128 = 0;
  /// Whether the user and the topology let ranks reach each other directly; why not, in words, where not.
  std::function<bool(int rank, int peer, std::string* why)> mayReach;
};

class DeviceGroup {
 public:
  /// Meets the other ranks of this process (`key`: a random number that the communicator's ranks agreed on).
  /// Every rank names its device. All get the same group, or an error when one does not come before the
  /// deadline, or `faults` is raised. Allocates this rank's segment, and enables peer access.
  static Result<std::shared_ptr<DeviceGroup>> join(Driver& driver, uint64_t key, int rank, int ranks,
                                                   int device, const DeviceGroupOptions& options,
                                                   const FaultState* faults, Deadline deadline);
  ~DeviceGroup();
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  int ranks() const { return static_cast<int>(members_.size()); }
  int device(int rank) const { return members_[static_cast<size_t>(rank)].device; }
  /// Ranks of this group that have their kernels on the device.
  int ranksOn(int device) const;
  /// See above; `stagedWhy` names a pair and the reason.
  bool isStaged() const { return staged_; }
  const std::string& stagedWhy() const { return stagedWhy_; }
  const DeviceGroupOptions& options() const { return options_; }
  std::byte* segment(int rank) const { return members_[static_cast<size_t>(rank)].segment; }

  /// Both ends of the connection src -> dst: made on first use, by whichever end asks first. Thread-safe.
  /// `sent` of the sender lies on src's device, everything else as device_program.h draws it.
  struct Connection {
    device::Sender sender;
    device::Receiver receiver;
  };
  Result<Connection> connect(int src, int dst, uint32_t channel, uint32_t port);
  /// "P2P/direct" or "P2P/staged", with devices, for the log.
  std::string transportName(int src, int dst) const;

  /// The calls that ranks of the group enqueued, so that calls which do not match are told at once instead of
  /// making kernels wait: rank `rank` enqueues its `number`-th call (from 1), described by `text` and equal
  /// on all ranks where `digest` is. An error (invalidUsage) names both ranks and both texts. Thread-safe,
  /// never waits.
  Status compareCall(int rank, uint64_t number, uint64_t digest, const std::string& text);
  /// From here on calls pass: a rank has captured some, and nobody knows when, how often and whether they
  /// run.
  void stopComparing();

 private:
  struct Member {
    int device = 0;
    std::byte* segment = nullptr;
  };
  class Arena;
  struct Meeting;
  DeviceGroup() = default;
  /// Once all ranks are there.
  static Result<std::shared_ptr<DeviceGroup>> build(Driver& driver, const std::vector<int>& devices,
                                                    const DeviceGroupOptions& options);

  Driver* driver_ = nullptr;
  DeviceGroupOptions options_;
  std::vector<Member> members_;
  bool staged_ = false;
  std::string stagedWhy_;
  struct State;  // connections, arenas, calls: device_group.cc
  std::unique_ptr<State> state_;
};

}  // namespace tutti
