// One rank's connections to all others of its communicator: what an executor works with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/fault_state.h"
#include "base/oob.h"
#include "base/status.h"
#include "transport/doorbell.h"
#include "transport/fifo.h"

namespace tutti {

/// FIFOs between two ranks on one channel and direction, and flags between two ranks on one channel (the
/// schedule IR's kMaxPorts and kMaxFlags must not exceed them).
constexpr int kEndpointPorts = 8;
constexpr int kEndpointFlags = 16;

/// What ranks tell each other at init about where they are.
struct PeerInfo {
  int rank = 0;
  std::string hostName;
  std::string hostId;  // NCCL_HOSTID, else host name + boot id + network namespace
  int64_t pid = 0;
  uint64_t processToken = 0;  // random, the same for all ranks of a process
  int device = 0;
  int numaNode = -1;            // of the device; -1: not known
  uint64_t topologyDigest = 0;  // of what it sees of its host's hardware: equal where ranks see the same
  int processors = 0;           // of its machine, that are online; 0: not known
  std::string gpu = {};         // PCI address of the GPU of its host's topology that it is on; empty: on none
  std::string machineId = {};   // equal for hosts that share processors (containers); empty: not known
};

/// Sizes that all ranks of a communicator agreed on.
struct EndpointOptions {
  int channels = 1;
  size_t slotBytes = 128 * 1024;  // of every FIFO slot
  size_t scratchBytes = 0;        // of one half (parity) of a channel's scratch
  int memoryNode = -1;            // NUMA node of this rank's memory; -1: as it comes
  uint64_t secret[2] = {0, 0};    // of the communicator; authenticates connections and memory requests
};

/// A user buffer as peers see it: a place in a memory file, or a plain address for ranks of the same process.
/// Fixed-size and trivially copyable: it is posted on a board in shared memory.
struct BufferDescriptor {
  uint64_t fileId = 0;  // 0: not in a memory file
  uint64_t fileBytes = 0;
  uint64_t offset = 0;   // of the buffer in the file
  uint64_t address = 0;  // in the owner's address space
};

/// What a rank posts on its host's board before a collective that wants to use user buffers directly.
struct BoardEntry {
  BufferDescriptor input;
  BufferDescriptor output;
  uint64_t call = 0;    // identifies collective, count, type and operator: a cheap mismatch check
  uint64_t usable = 0;  // 1: this rank's buffers may be used directly
};

/// All functions without a Deadline never block. Not thread-safe: one thread at a time works with an
/// endpoint, except for ringBell(), which any thread may call.
class Endpoint {
 public:
  /// Collective over all ranks: finds out who shares memory with whom, makes or maps the host segment, starts
  /// the listener of message transports. Connections themselves come up on first use.
  static Result<std::unique_ptr<Endpoint>> create(const std::vector<PeerInfo>& peers, int rank,
                                                  const EndpointOptions& options, OobChannel& oob,
                                                  std::shared_ptr<FaultState> faults, Deadline deadline);
  virtual ~Endpoint() = default;

  virtual const EndpointOptions& options() const = 0;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// True when this rank and `peer` see the same memory (same process, or same host with a passed memory
  /// file).
  virtual bool mapped(int peer) const = 0;
  virtual bool sameProcess(int peer) const = 0;
  /// Ranks of this host (mapped ones), ascending, this rank included.
  virtual const std::vector<int>& localRanks() const = 0;
  /// All ranks by hosts (groups that share memory): the same on all ranks, ascending, by their lowest ranks.
  virtual const std::vector<std::vector<int>>& hosts() const = 0;
  /// "NET/Socket", "SHM", "P2P/direct": for logs.
  virtual std::string transportName(int peer) const = 0;

  /// The FIFO end for messages to / from `peer`. References stay valid for the endpoint's life. For message
  /// connections the call starts connecting; the FIFO works at once, its slots move when the peer has
  /// answered.
  virtual Result<FifoSender*> sender(int peer, int channel, int port) = 0;
  virtual Result<FifoReceiver*> receiver(int peer, int channel, int port) = 0;

  /// Flag counters for signal / wait between mapped ranks: the counter that `from` raises for `to`.
  virtual std::atomic<uint64_t>* flag(int from, int to, int channel, int flag) = 0;
  /// Base of `rank`'s scratch on a channel, as mapped here: two halves of options().scratchBytes. Null when
  /// not mapped.
  virtual std::byte* scratch(int rank, int channel) = 0;
  virtual Doorbell* bell(int rank) = 0;

  /// Board: posts this rank's entry for negotiation number `sequence` (1, 2, ...; the same on all ranks) and
  /// rings the local ranks. read() gives rank's entry once it has posted that number, null before.
  virtual void post(uint64_t sequence, const BoardEntry& entry) = 0;
  virtual const BoardEntry* read(int rank, uint64_t sequence) const = 0;

  /// Describes a buffer of this rank for the board; usable is decided by the caller. Peers in the same
  /// process can use it when address is not 0, mapped peers in other processes when fileId is not 0. Both are
  /// 0 where NCCL_P2P_DISABLE forbids direct use.
  virtual BufferDescriptor describe(const void* pointer, size_t bytes) const = 0;
  /// The address at which a local peer's buffer can be used here. Maps its memory file on first use: asks the
  /// owner's process for the descriptor (answered by its service thread), within the deadline. Mappings are
  /// cached.
  virtual Result<std::byte*> mapPeerBuffer(int peer, const BufferDescriptor& buffer, Deadline deadline) = 0;

  /// As mapPeerBuffer, but the mapping stays as long as `keep` is held (or the endpoint lives), and any
  /// thread may call it at any time.
  struct Mapping {
    std::byte* address = nullptr;
    std::shared_ptr<void> keep;  // null for memory of this process
  };
  virtual Result<Mapping> mapForGood(int peer, const BufferDescriptor& buffer, Deadline deadline) = 0;

  /// Moves message connections forward without blocking; true when anything moved. No-op when there are none.
  virtual bool progress() = 0;
  /// The part of progress() that sends: for a message that was just published and is still in the cache. May
  /// do nothing.
  virtual void sendNow() = 0;
  /// Message connections are worked on by the service thread, except while a thread that runs collectives has
  /// taken them: endSleep() takes them (call it when a run starts and after every sleep); beginSleep() gives
  /// them back (before the thread sleeps on its doorbell AND when it has finished its run: what the run
  /// published may still have to be sent). The service thread rings this rank's bell when something moved.
  /// When the rank sleeps on the bell (Doorbell::prepare()), it may ring and leave the moving to the sleeper,
  /// who then takes the connections and calls progress(); where he does not, it is done for him 5 to 50 ms
  /// later. Both functions may be called again without harm, and cost nothing when there are no message
  /// connections. A thread that leaves without beginSleep() is noticed, but what it published may then wait
  /// up to 50 ms.
  virtual void beginSleep() = 0;
  virtual void endSleep() = 0;
  /// Instead of beginSleep() and sleep() on the own bell, where it is possible (false: it is not, nothing was
  /// done): sleeps until the bell rings after `ticket`, a message connection has something, or the limit
  /// passes; without the service thread between. The thread keeps the connections; progress() comes next.
  virtual bool sleepOnConnections(uint32_t ticket, uint32_t limitMicros) = 0;
};

}  // namespace tutti
