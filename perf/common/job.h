// What the threads of one process share, and the ranks that they drive.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/collective.h"
#include "common/device.h"
#include "common/options.h"
#include "common/outcome.h"
#include "common/processes.h"
#include "common/results.h"
#include "common/split.h"
#include "common/team.h"
#include "common/tile.h"
#include "common/watchdog.h"

namespace tutti::perf {

/// One rank: a device of this process with its communicator, stream and buffers. Used by one thread.
struct RankState {
  int rank = 0;  // in the whole run
  int device = 0;
  int group = 0;      // its color; ranks of a group share a communicator
  int groupRank = 0;  // in the communicator
  int groupSize = 1;
  ncclUniqueId id{};
  ncclComm_t comm = nullptr;
  Stream stream;
  DeviceBuffer send;
  DeviceBuffer recv;
  void* sendHandle = nullptr;  // of ncclCommRegister
  void* recvHandle = nullptr;
  ncclWindow_t sendWindow = nullptr;
  ncclWindow_t recvWindow = nullptr;
};

/// One process of a run.
class Job {
 public:
  /// Bytes behind each receive buffer that must stay as they were.
  static constexpr size_t kGuardBytes = 256;

  Job(const Options& options, const Collective& collective, Processes& processes);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Assigns ranks to devices, exchanges ids, and unless -p initialises all communicators.
  Outcome prepare();
  /// For the ranks of one thread, called by it: communicators (with -p), streams, buffers, registration.
  Outcome prepareThread(int thread);
  /// Starts to watch the communicators; after all threads have prepared.
  void watch();
  void cleanUp();

  /// Waits for all threads of all processes. False when somebody failed. Thread 0 is the one that made the
  /// job.
  bool meet(int thread);
  /// Ends the run for all threads; the first message counts.
  void fail(const std::string& message);

  RankState* ranksOf(int thread) { return ranks_.data() + thread * options.devicesPerThread; }
  /// All ranks of the run, in order.
  const std::vector<RankInfo>& rankInfos() const { return infos_; }
  bool isRoot() const { return processes.rank() == 0; }
  /// What -M prints, after the last operation.
  std::string memoryText() const;
  /// Memory of this process that is in use; of thread 0, around its first operation.
  static size_t residentBytes();
  void noteFirstUse(size_t residentBefore);

  const Options& options;
  const Collective& collective;
  Processes& processes;
  Watchdog watchdog;
  TileCache tiles;
  std::vector<std::vector<double>> threadTimes;  // by thread: what it measured, for thread 0 to combine
  std::vector<uint64_t> threadWrong;

 private:
  struct BufferBytes {
    size_t send = 0;
    size_t recv = 0;
  };

  Outcome assignRanks();
  Outcome exchangeInfos();
  Outcome exchangeIds();
  Outcome initialise(RankState* ranks, int count);
  /// --algo, --proto, --channels: for all these ranks' later calls.
  Outcome pin(RankState* ranks, int count);
  Outcome allocate(RankState& state);
  Outcome registerBuffers(RankState* mine);
  Outcome registerBuffersOf(RankState& state);
  void release(RankState& state);
  BufferBytes bufferBytes(const RankState& state) const;

  ThreadBarrier barrier_;
  Split split_;
  std::vector<RankState> ranks_;
  std::vector<RankInfo> infos_;
  size_t freeBefore_ = 0;  // device memory, for -M
  size_t freeAfterInit_ = 0;
  size_t residentBefore_ = 0;
  size_t residentAfterInit_ = 0;
  std::optional<size_t> firstUse_;
};

}  // namespace tutti::perf
