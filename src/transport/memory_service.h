// Memory that passes between processes of one host: who answers for the files of this process, and the files
// of peers that are mapped here.
//
//   rank 3, process A                                    rank 0, process B
//   map(peer 0, {fileId 7, offset})
//     connect to B's Unix socket, prove the secret  -->  service thread: which memory is file 7?
//     <-- descriptor of file 7 ----------------------    (asks the runtime, duplicates, sends, closes)
//     map the file, keep it for next time
//
// Abstract Unix sockets are used: no file system, nothing left behind, and reachable exactly inside the
// network namespace, which is part of what makes two processes "the same host".
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/deadline.h"
#include "base/fault_state.h"
#include "base/handshake.h"
#include "base/hmac.h"
#include "base/memory_file.h"
#include "base/status.h"
#include "transport/endpoint.h"

namespace tutti {

/// How to reach the memory service of a rank. Exchanged out of band.
struct MemoryServiceAddress {
  SocketAddress socket;
  uint64_t service = 0;  // random; 0: there is none
};

/// Gives away descriptors of this process's memory to peers that know the communicator's secret. One for each
/// endpoint; all of a process share one listening socket. Thread-safe.
class MemoryService {
 public:
  static Result<std::unique_ptr<MemoryService>> start(const Secret& secret);
  ~MemoryService();
  MemoryService(const MemoryService&) = delete;
  MemoryService& operator=(const MemoryService&) = delete;

  const MemoryServiceAddress& address() const { return address_; }

  /// Offers the host segment (a duplicate of its descriptor is kept until withdrawSegment or destruction).
  Status offerSegment(int fd, size_t bytes);
  void withdrawSegment();

  /// Describes memory of the host runtime, and remembers where it is, so that a request for its file can be
  /// answered. A pointer that is not in a memory file gets its address only.
  BufferDescriptor describe(const void* pointer);

 private:
  MemoryService() = default;
  void answer(AcceptedConnection connection);
  Status send(const AcceptedConnection& connection, uint64_t fileId);

  std::shared_ptr<AuthListener> listener_;
  MemoryServiceAddress address_;
  std::mutex mutex_;
  UniqueFd segment_;
  size_t segmentBytes_ = 0;
  std::unordered_map<uint64_t, const void*> files_;  // file id -> start of its memory
};

/// Fetches the descriptor of a peer's file and maps it. fileId 0 is the host segment. Errors name the owner.
Result<MemoryFile> fetchMemoryFile(const PeerInfo& owner, const MemoryServiceAddress& from,
                                   const Secret& secret, uint64_t fileId, size_t bytes, Deadline deadline,
                                   const FaultState* faults);

/// The files of peers that one endpoint has mapped. Endpoints of one process that want the same file share
/// one mapping. One thread at a time.
class PeerMemory {
 public:
  /// Address here of the buffer that `owner` described.
  Result<std::byte*> map(const PeerInfo& owner, const MemoryServiceAddress& from, const Secret& secret,
                         const BufferDescriptor& buffer, Deadline deadline, const FaultState* faults);
  size_t files() const { return files_.size(); }

 private:
  struct Entry {
    std::shared_ptr<MemoryFile> file;
    std::chrono::steady_clock::time_point used;
  };
  void evict(std::chrono::steady_clock::time_point now);

  std::map<std::pair<uint64_t, uint64_t>, Entry> files_;  // (process token, file id)
};

}  // namespace tutti
