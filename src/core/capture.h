// Calls on streams that are being captured: they become nodes of a graph and run at each of its launches.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/status.h"
#include "core/operation.h"

namespace tutti {

class Communicator;

/// What captured calls know of their communicator: graphs may outlive it. Thread-safe.
class CaptureLink {
 public:
  explicit CaptureLink(Communicator& communicator) : communicator_(&communicator) {}
  /// From here on launches fail: the communicator ends. Waits for a launch that is preparing its task.
  void cut();

 private:
  friend class CapturedCall;
  std::mutex mutex_;
  Communicator* communicator_;
};

/// The capture that a call of the communicator on this stream belongs to; 0 when it is to be executed. An
/// error when the capture was invalidated, and for the default stream while a blocking stream of its device
/// is captured.
Result<uint64_t> captureOf(const Communicator& communicator, cudaStream_t stream);

/// The operations of one group on one communicator, whose streams are all in the same capture.
struct CapturedOperations {
  Communicator* communicator = nullptr;
  std::vector<Operation> operations;
};

/// Puts what a group captures into the graphs. Each communicator's operations are a node of their own; ranks
/// of the same communicator that were given the same stream (see shareStream) are one node, since one behind
/// the other they would wait for each other for ever.
///
/// At every launch of the graph the launching thread takes a task with the next ticket, as a call would: so
/// the order of launches and calls is the order in which the communicator's operations run, on all ranks.
Status captureOperations(std::vector<CapturedOperations> group);

}  // namespace tutti
