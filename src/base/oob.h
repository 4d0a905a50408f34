// The out-of-band channel of a communicator: small control messages between ranks, never payload.
// Declared here so that transports can be handed one without knowing the bootstrap that implements it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"

namespace tutti {

/// All calls may block until the deadline, return early with an error when the communicator is aborted (abort
/// flag set) or a peer is known to be dead, and name rank and host of the peer concerned in their errors.
/// Collective calls must be made by all ranks in the same order. One thread at a time.
class OobChannel {
 public:
  virtual ~OobChannel() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Every rank's bytes, in rank order. Sizes may differ.
  virtual Result<std::vector<std::string>> allGather(std::string_view mine, Deadline deadline) = 0;
  virtual Status barrier(Deadline deadline) = 0;
  /// Point to point; messages of one (sender, receiver, tag) keep their order. Connects on first use.
  virtual Status send(int peer, uint64_t tag, std::string_view bytes, Deadline deadline) = 0;
  virtual Result<std::string> receive(int peer, uint64_t tag, Deadline deadline) = 0;
};

}  // namespace tutti
