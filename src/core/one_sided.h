// One-sided communication: a rank writes into a peer's window and signals; the peer need not call anything
// but a wait.
//
//   rank 0                                             rank 1
//   put: copy into rank 1's window   --mapped------->  window
//   then counter[0][sig] of rank 1 += 1, ring  ----->  wait: counter[0][sig] has reached what was waited for
//
// Where the window cannot be mapped (another host, memory that no file backs) data and signal go as messages
// over the control channel, and the peer's service thread does the copy and the counting. Once one put to a
// peer has gone that way, all signals to it do, so that none overtakes its data.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "nccl.h"
#include "transport/endpoint.h"

namespace tutti {
class Communicator;
}

namespace tutti {

/// What an ncclWindow_t stands for: memory that every rank of a communicator has offered to the others.
struct Window {
  struct Peer {
    uint64_t bytes = 0;
    std::byte* address = nullptr;  // null: by messages
    std::shared_ptr<void> mapping;
  };
  /// The pointer is used as a name only: kernels of the device API would look behind it.
  ncclWindow_t handle() { return reinterpret_cast<ncclWindow_t>(this); }

  uint64_t id = 0;         // the same on all ranks
  bool symmetric = false;  // all ranks use the same offsets in it, in every call (NCCL_WIN_COLL_SYMMETRIC)
  void* base = nullptr;
  size_t bytes = 0;
  std::vector<Peer> peers;
};

/// Signals that a rank can tell apart, for each peer.
constexpr int kSignals = 16;

/// One call, after its arguments were checked.
struct OneSidedCall {
  enum class Kind : uint8_t { put, signal, wait };
  Kind kind = Kind::signal;
  int peer = 0;
  int signal = 0;
  uint64_t count = 0;  // wait: how many signals
  const void* source = nullptr;
  size_t bytes = 0;
  std::shared_ptr<Window> window;
  size_t offset = 0;
};

/// Windows, signals and their counters of one communicator. Thread-safe.
class OneSided {
 public:
  explicit OneSided(Communicator& communicator);
  ~OneSided();

  /// Collective; blocks until all ranks have called, or the deadline for set-up has passed.
  Status registerWindow(void* buffer, size_t bytes, bool symmetric, ncclWindow_t* window);
  /// Local. A peer that still writes into the window gets an error, where it writes by messages.
  Status deregisterWindow(ncclWindow_t window);
  Result<std::shared_ptr<Window>> find(ncclWindow_t window);
  /// True when the memory lies in one symmetric window.
  bool isSymmetric(const void* memory, size_t bytes);

  Status checkPut(const OneSidedCall& call) const;
  /// Does the call if that needs no waiting and no long copy, and sets *status; else leaves it alone and is
  /// false.
  bool tryExecute(const OneSidedCall& call, Status* status);
  /// Does the call; waits where it must, until the communicator fails.
  Status execute(const OneSidedCall& call);

 private:
  struct PeerSignals {
    std::atomic<uint64_t>* counters = nullptr;  // of the peer, for signals from us; null: by messages
    std::shared_ptr<void> mapping;
    std::atomic<bool> byMessage{false};  // a put to the peer has gone by message
  };

  Status allocateSignals();
  Result<std::vector<std::string>> exchangeWindow(const void* buffer, size_t bytes);
  Status connectPeer(int peer, std::string_view description, Window& window);
  std::shared_ptr<void> map(int peer, const BufferDescriptor& buffer, std::byte*& address);
  Status put(const OneSidedCall& call);
  Status putByMessage(const OneSidedCall& call);
  Status signal(int peer, int index);
  Status sendMessage(int peer, std::string_view bytes);
  Status await(const OneSidedCall& call);
  uint64_t arrived(int peer, int index) const;
  void onMessage(int peer, std::string_view bytes);
  size_t slot(int peer, int index) const {
    return static_cast<size_t>(peer) * kSignals + static_cast<size_t>(index);
  }

  Communicator& communicator_;
  std::mutex setup_;  // one registration at a time
  uint64_t registered_ = 0;
  std::atomic<uint64_t>* mapped_ = nullptr;  // signals that came through mapped memory; from the host runtime
  std::vector<std::atomic<uint64_t>> messages_;  // that came as messages
  std::vector<std::atomic<uint64_t>> awaited_;   // that waits have been promised
  std::vector<PeerSignals> peers_;
  std::mutex windowsMutex_;
  std::map<uint64_t, std::shared_ptr<Window>> windows_;
};

/// Enqueues the calls of one communicator on a stream, in order.
Status launchOneSided(Communicator& communicator, cudaStream_t stream, std::vector<OneSidedCall> calls);

// What the entry points do.
Status registerWindowCall(ncclComm_t comm, void* buffer, size_t bytes, ncclWindow_t* window, int flags);
Status deregisterWindowCall(ncclComm_t comm, ncclWindow_t window);
Result<void*> windowPointerCall(ncclComm_t comm, ncclWindow_t window);
struct PutArguments {
  const void* source;
  size_t count;
  ncclDataType_t type;
  int peer;
  ncclWindow_t window;
  size_t offset;
  int signal;
  int context;
  unsigned flags;
};
Status putSignalCall(const PutArguments& put, ncclComm_t comm, cudaStream_t stream);
Status signalCall(int peer, int signal, int context, unsigned flags, ncclComm_t comm, cudaStream_t stream);
struct WaitArguments {
  int count;
  int peer;
  int signal;
  int context;
};
Status waitSignalCall(const std::vector<WaitArguments>& waits, ncclComm_t comm, cudaStream_t stream);

}  // namespace tutti
