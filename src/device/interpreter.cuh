// The kernel: a block runs one lane of a flattened schedule (base/device_program.h), step after step.
//
//   thread 0, thread 32    wait for the message and for a free place      last warp    plans the pieces
//   ---- barrier ----
//   all threads            move the pieces
//   ---- barrier ----
//   thread 0, thread 32    the place is free again; the message is there
//
// docs/cuda-executor.md says what orders what.
#pragma once

#include "device/flags.cuh"
#include "device/lines.cuh"
#include "device/links.cuh"
#include "device/move.cuh"
#include "device/sequencer.cuh"

namespace tutti::device::TUTTI_KERNELS {

template <class Number, Protocol kProtocol>
class Interpreter {
 public:
  static constexpr uint32_t kElement = sizeof(typename Number::Stored);

  TUTTI_DEVICE Interpreter(Shared& shared, LinkState* links) : links_(links), view_{shared, {}} {}

  /// The block's lane of its call, then those of the calls chained to it.
  TUTTI_DEVICE void run(const LaunchArguments& arguments) {
    const Call* calls = arguments.moreCalls != nullptr ? arguments.moreCalls : arguments.inlineCalls;
    uint32_t number = headOf(calls, arguments.heads);
    const uint32_t index = blockIdx.x - calls[number].firstBlock;
    do {
      // Calls of a chain may have fewer channels than its widest.
      if (index >= static_cast<uint32_t>(calls[number].channels) * calls[number].lanes) {
        number = calls[number].next;
        continue;
      }
      if (threadIdx.x == 0) {
        Shared& shared = view_.shared;
        shared.comm = arguments.comm;
        shared.call = &calls[number];
        shared.program = calls[number].program;
        shared.callNumber = number;
        shared.channel = index / calls[number].lanes;
        shared.lane = index % calls[number].lanes;
        shared.reporter = 0;
        loadOperator<Number>(calls[number], shared);
      }
      if (__syncthreads_or(wasAborted(arguments.comm->abort)) != 0 || !runLane()) return;
      number = view_.call().next;
      __syncthreads();
    } while (number != 0);
  }

 private:
  /// The call that owns this block: the last one that does not begin behind it.
  TUTTI_DEVICE static uint32_t headOf(const Call* calls, uint32_t heads) {
    uint32_t low = 0;
    uint32_t high = heads;
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      (calls[middle].firstBlock <= blockIdx.x ? low : high) = middle;
    }
    return low;
  }

  TUTTI_DEVICE bool runLane() {
    const Lane lane = view_.program().lanes()[view_.shared.lane];
    if (threadIdx.x == 0) planCall<kElement>(view_);
    loadLinks<kProtocol>(view_, lane, links_);
    if (view_.program().usesPeerBuffers) writeBoards(view_);
    __syncthreads();
    if (!walk(view_, lane, [this](const Step& step) { return runStep(step); })) return false;
    // Behind the barrier that ended the last step; its end may still be under way.
    __syncthreads();
    storeLinks(lane, links_);
    if (threadIdx.x == 0 && view_.program().sharedScratch) leaveChannel(view_);
    return true;
  }

  /// Ends with a barrier, behind which only thread 0 and the sending thread still work on the step.
  TUTTI_DEVICE bool runStep(const Step& step) {
    bool goesOn = true;
    if (step.kind == StepKind::signal) {
      raiseFlags(view_, step);
    } else if (step.kind == StepKind::wait) {
      goesOn = awaitFlags(view_, step);
    } else {
      return moveData(step);
    }
    return __syncthreads_or(!goesOn) == 0;
  }

  TUTTI_DEVICE bool moveData(const Step& step) {
    LinkState* receiver = step.receives ? &links_[linkNumber(step.receiveLink, step.receiveVaries)] : nullptr;
    LinkState* sender = step.sends ? &links_[linkNumber(step.sendLink, step.sendVaries)] : nullptr;
    if (__syncthreads_or(!begin(step, receiver, sender)) != 0) return false;
    if (!checkSize(step, receiver)) return false;
    uint64_t bytes = 0;
    const bool moved = movePieces(step, receiver, &bytes);
    // Lines carry their own data, but do not order other stores. What another lane of this rank overwrites
    // once messages say so (tree: the partial sum in the output) must have been stored before the lane's next
    // lines.
    if (kProtocol != Protocol::simple && step.hasDestination && view_.program().laneCount > 1) fenceDevice();
    if (TUTTI_PLANT == TUTTI_PLANT_NO_BARRIER) {
      if (!moved) return false;
    } else if (__syncthreads_or(!moved) != 0) {
      return false;
    }
    if (sender != nullptr && threadIdx.x == sendingThread()) endSend<kProtocol>(*sender, bytes);
    if (receiver != nullptr && threadIdx.x == 0) endReceive<kProtocol>(*receiver);
    return true;
  }

  TUTTI_DEVICE uint32_t linkNumber(uint32_t link, uint8_t varies) const {
    return view_.program().linkNumbers()[link + (varies ? static_cast<uint32_t>(view_.cursor.iteration) : 0)];
  }

  /// Up to the first barrier. False when the communicator is aborted.
  TUTTI_DEVICE bool begin(const Step& step, LinkState* receiver, LinkState* sender) {
    planBases(view_, step);
    if (step.sizeKnown) planPieces<kElement>(view_, step, 0);
    if (receiver != nullptr && threadIdx.x == 0 && !beginReceive<kProtocol>(view_, *receiver)) return false;
    if (sender != nullptr && threadIdx.x == sendingThread()) return beginSend<kProtocol>(view_, *sender);
    return true;
  }

  /// Simple: the message has the size that the step expects; one that is forwarded fits a slot. All threads
  /// come to the same answer.
  TUTTI_DEVICE bool checkSize(const Step& step, const LinkState* receiver) const {
    if (kProtocol != Protocol::simple || receiver == nullptr) return true;
    const uint64_t got = view_.shared.incomingBytes;
    const uint64_t expected = step.sizeKnown ? expectedBytes(view_.shared, step) : view_.comm().slotBytes;
    if (step.sizeKnown ? got == expected : got <= expected) return true;
    if (threadIdx.x == 0) reportSize(view_, receiver->peer, got, expected);
    return false;
  }

  /// False in a thread that found the communicator aborted; it comes to all barriers all the same.
  TUTTI_DEVICE bool movePieces(const Step& step, const LinkState* receiver, uint64_t* total) {
    const bool inLines = kProtocol != Protocol::simple && (step.receives || step.sends);
    Operands o = operandsOf(view_.shared, step, !inLines);
    const auto op = operatorOf<Number>(view_, step, o.sourceCount);
    Lines<kProtocol> lines(view_, step, receiver != nullptr ? receiver->peer : -1);
    // A message of unknown size is one piece: it passes as it is.
    const auto pieces = step.sizeKnown ? static_cast<uint32_t>(step.pieces) : 1;
    bool goesOn = true;
    for (uint32_t piece = 0; piece < pieces; ++piece) {
      o.piece = piece % kPlanned;
      if (piece != 0 && o.piece == 0) {
        __syncthreads();
        planPieces<kElement>(view_, step, piece);
        __syncthreads();
      }
      const uint64_t bytes = step.sizeKnown ? view_.shared.pieces[o.piece].bytes : view_.shared.incomingBytes;
      // A message without data still has a line.
      const bool lastEmpty = inLines && piece + 1 == pieces && o.inMessage == 0;
      if (bytes == 0 && !lastEmpty) continue;
      if (inLines) {
        goesOn = goesOn && lines.movePiece(o, op, bytes);
      } else {
        movePiece(o, op, bytes);
      }
      o.inMessage += bytes;
    }
    *total = o.inMessage;
    return goesOn;
  }

  LinkState* links_;
  LaneView view_;
};

template <class Number, Protocol kProtocol>
TUTTI_DEVICE void interpret(const LaunchArguments& arguments) {
  // All of it is dynamic: what is declared __shared__ would be thread-local in the twins, and a library with
  // that much static thread-local memory cannot be opened by dlopen.
  extern __shared__ Shared shared[];
  Interpreter<Number, kProtocol>(*shared, reinterpret_cast<LinkState*>(shared + 1)).run(arguments);
}

}  // namespace tutti::device::TUTTI_KERNELS

#if defined(TUTTI_HOST_KERNELS_COMPILATION)
#define TUTTI_TWINS(type)                                          \
  namespace tutti::device::TUTTI_KERNELS {                         \
  const shim::KernelTwin* twinOf##type(Protocol protocol) {        \
    switch (protocol) {                                            \
      case Protocol::simple:                                       \
        return &shim::Twin<&tuttiInterpret##type##Simple>::record; \
      case Protocol::ll:                                           \
        return &shim::Twin<&tuttiInterpret##type##LL>::record;     \
      case Protocol::ll128:                                        \
        return &shim::Twin<&tuttiInterpret##type##LL128>::record;  \
    }                                                              \
    return nullptr;                                                \
  }                                                                \
  }
#else
#define TUTTI_TWINS(type)
#endif

#define TUTTI_KERNEL(type, name, protocol)                                                           \
  extern "C" __global__ void __launch_bounds__(512, 1)                                               \
      tuttiInterpret##type##name(const __grid_constant__ tutti::device::LaunchArguments arguments) { \
    tutti::device::TUTTI_KERNELS::interpret<tutti::device::TUTTI_KERNELS::type,                      \
                                            tutti::device::Protocol::protocol>(arguments);           \
  }

/// The kernels of a type.
#define TUTTI_INTERPRETER(type)      \
  TUTTI_KERNEL(type, Simple, simple) \
  TUTTI_KERNEL(type, LL, ll)         \
  TUTTI_KERNEL(type, LL128, ll128)   \
  TUTTI_TWINS(type)
