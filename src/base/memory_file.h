// Memory that several processes map: memory files (memfd) passed over Unix sockets, and named segments where
// descriptors cannot be passed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/fault_state.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace tutti {

/// A file of memory, mapped shared and writable. Zeroed when made. Unmapped and closed when it goes; the
/// memory lives until the last process has let go.
class MemoryFile {
 public:
  /// A new anonymous file. `name` is only seen in /proc/PID/maps. Its size is sealed: it can be neither
  /// shrunk (which would make readers die of SIGBUS) nor grown. bytes is rounded up to whole pages.
  static Result<MemoryFile> create(std::string_view name, size_t bytes);
  /// Maps a file received from a peer. Fails unless it is exactly as long as expected (rounded up to pages)
  /// and sealed against shrinking.
  static Result<MemoryFile> attach(UniqueFd fd, size_t expectedBytes);

  /// A new segment in /dev/shm under a random name that exists until unlink() or destruction. Its pages are
  /// reserved now, so that a full /dev/shm is an error here and not a SIGBUS later.
  static Result<MemoryFile> createNamed(size_t bytes);
  /// Opens a named segment of the same user; checks owner and size. Named segments cannot be sealed: use only
  /// with peers of the same job.
  static Result<MemoryFile> openNamed(const std::string& name, size_t expectedBytes);

  MemoryFile() = default;
  MemoryFile(MemoryFile&& other) noexcept { *this = std::move(other); }
  MemoryFile& operator=(MemoryFile&& other) noexcept;
  ~MemoryFile() { reset(); }

  explicit operator bool() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }
  /// Length of the mapping: whole pages.
  size_t size() const { return size_; }
  int fd() const { return fd_.get(); }
  /// Of a named segment that still has its name; else empty.
  const std::string& name() const { return name_; }
  /// Removes the name; mappings stay. Call as soon as all peers have opened it.
  void unlink();
  /// Closes the descriptor early, keeps the mapping: for peers of many files.
  void closeDescriptor() { fd_.reset(); }
  void reset();

 private:
  Status map(size_t bytes);

  UniqueFd fd_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string name_;
};

/// Sends a descriptor and `payload` (1 byte at least) over a connected Unix stream socket.
Status sendDescriptor(int socket, int fd, std::string_view payload, Deadline deadline,
                      const FaultState* faults);

struct ReceivedDescriptor {
  UniqueFd fd;
  std::string payload;
};
/// Receives what sendDescriptor sent; payloadBytes must be what was sent. Fails, and closes all that came,
/// when there is no descriptor, more than one, or the kernel had to drop some (descriptor limit).
Result<ReceivedDescriptor> receiveDescriptor(int socket, size_t payloadBytes, Deadline deadline,
                                             const FaultState* faults);

}  // namespace tutti
