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

  TUTTI_DEVICE Interpreter(Shared& shared, LinkState* links, const LaunchArguments& arguments)
      : shared_(shared), links_(links), arguments_(arguments) {}

  /// The block's lane of its call, then those of the calls chained to it.
  TUTTI_DEVICE void run() {
    const Call* calls = arguments_.moreCalls != nullptr ? arguments_.moreCalls : arguments_.inlineCalls;
    uint32_t number = headOf(calls);
    const uint32_t index = blockIdx.x - calls[number].firstBlock;
    do {
      view_.comm = arguments_.comm;
      view_.call = &calls[number];
      view_.program = view_.call->program;
      view_.callNumber = number;
      view_.channel = index / view_.call->lanes;
      view_.lane = index % view_.call->lanes;
      if (!runLane()) return;
      number = view_.call->next;
    } while (number != 0);
  }

 private:
  /// The call that owns this block: the last one that does not begin behind it.
  TUTTI_DEVICE uint32_t headOf(const Call* calls) const {
    uint32_t low = 0;
    uint32_t high = arguments_.heads;
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      (calls[middle].firstBlock <= blockIdx.x ? low : high) = middle;
    }
    return low;
  }

  TUTTI_DEVICE bool runLane() {
    const Call& call = *view_.call;
    const Lane lane = view_.program->lanes()[view_.lane];
    operator_.op = call.op;
    operator_.scale = call.scalar != nullptr ? Number::scaleAt(call.scalar) : Number::scaleOf(call.scale);
    operator_.divisor = call.divisor;
    if (threadIdx.x == 0) planCall<kElement>(view_, shared_);
    loadLinks<kProtocol>(view_, lane, links_);
    if (view_.program->usesPeerBuffers) writeBoards(view_);
    __syncthreads();
    if (!walk(view_, lane, [this](const Step& step) { return runStep(step); })) return false;
    // Behind the barrier that ended the last step; its end may still be under way.
    __syncthreads();
    storeLinks(lane, links_);
    if (threadIdx.x == 0 && view_.program->sharedScratch) leaveChannel(view_);
    if (call.next != 0) __syncthreads();
    return true;
  }

  /// Ends with a barrier, behind which only thread 0 and the sending thread still work on the step.
  TUTTI_DEVICE bool runStep(const Step& step) {
    bool goesOn = true;
    if (step.kind == StepKind::signal) {
      raiseFlags(view_, step);
    } else if (step.kind == StepKind::wait) {
      goesOn = awaitFlags(view_, shared_, step);
    } else {
      return moveData(step);
    }
    return __syncthreads_or(!goesOn) == 0;
  }

  TUTTI_DEVICE bool moveData(const Step& step) {
    LinkState* receiver = step.receives ? &links_[linkNumber(step.receiveLink, step.receiveVaries)] : nullptr;
    LinkState* sender = step.sends ? &links_[linkNumber(step.sendLink, step.sendVaries)] : nullptr;
    if (__syncthreads_or(!begin(step, receiver, sender)) != 0) return false;
    uint64_t bytes = 0;
    if (!checkSize(step, receiver)) return false;
    const bool moved = step.sizeKnown ? movePieces(step, receiver, &bytes) : forward(&bytes);
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
    return view_.program->linkNumbers()[link + (varies ? static_cast<uint32_t>(view_.cursor.iteration) : 0)];
  }

  /// Up to the first barrier. False when the communicator is aborted.
  TUTTI_DEVICE bool begin(const Step& step, LinkState* receiver, LinkState* sender) {
    if (step.hasSource) {
      planBases(view_, shared_, step.source, step.sourceTeam, step.sourceTeamCount, shared_.sources);
    }
    if (step.hasDestination) {
      planBases(view_, shared_, step.destination, step.destinationTeam, step.destinationTeamCount,
                shared_.destinations);
    }
    if (step.sizeKnown) planPieces<kElement>(view_, shared_, step, 0);
    if (receiver != nullptr && threadIdx.x == 0 && !beginReceive<kProtocol>(view_, shared_, *receiver))
      return false;
    if (sender != nullptr && threadIdx.x == sendingThread())
      return beginSend<kProtocol>(view_, shared_, *sender);
    return true;
  }

  /// Simple: the message has the size that the step expects; one that is forwarded fits a slot. All threads
  /// come to the same answer.
  TUTTI_DEVICE bool checkSize(const Step& step, const LinkState* receiver) const {
    if (kProtocol != Protocol::simple || receiver == nullptr) return true;
    const uint64_t got = shared_.incomingBytes;
    const uint64_t expected = step.sizeKnown ? expectedBytes(shared_, step) : view_.comm->slotBytes;
    if (step.sizeKnown ? got == expected : got <= expected) return true;
    if (threadIdx.x == 0) reportSize(view_, receiver->peer, got, expected);
    return false;
  }

  /// A message of whatever size, as it is.
  TUTTI_DEVICE bool forward(uint64_t* bytes) const {
    Operands o;
    o.sources = nullptr;
    o.destinations = nullptr;
    o.sourceOffset = o.destinationOffset = 0;
    o.sourceCount = o.destinationCount = 1;
    o.extraAt = 0;
    o.extra = shared_.incoming;
    o.slot = shared_.outgoing;
    *bytes = shared_.incomingBytes;
    Operator<Number> op = operator_;
    op.copies = 1;
    movePiece(o, op, *bytes);
    return true;
  }

  /// False in a thread that found the communicator aborted; it comes to all barriers all the same.
  TUTTI_DEVICE bool movePieces(const Step& step, const LinkState* receiver, uint64_t* total) {
    const bool inLines = kProtocol != Protocol::simple && (step.receives || step.sends);
    Operands o = operandsOf(shared_, step, !inLines);
    const auto op =
        operatorOf(operator_, view_.call->hasScale != 0, step.scaled, step.finalize != 0, o.sourceCount);
    Lines<kProtocol> lines(view_, shared_, step, receiver != nullptr ? receiver->peer : -1);
    bool goesOn = true;
    for (int32_t first = 0; first < step.pieces; first += kPlanned) {
      if (first != 0) {
        __syncthreads();
        planPieces<kElement>(view_, shared_, step, first);
        __syncthreads();
      }
      const int32_t left = step.pieces - first;
      for (int32_t i = 0; i < left && i < static_cast<int32_t>(kPlanned); ++i) {
        const PiecePlan& piece = shared_.pieces[i];
        if (piece.bytes == 0) continue;
        o.sourceOffset = piece.sourceOffset;
        o.destinationOffset = piece.destinationOffset;
        if (inLines) {
          goesOn = goesOn && lines.movePiece(o, op, piece.bytes);
        } else {
          if (step.receives) o.extra = shared_.incoming + *total;
          if (step.kind == StepKind::reduceLocal) o.extra = o.destination(0);
          if (step.sends) o.slot = shared_.outgoing + *total;
          movePiece(o, op, piece.bytes);
        }
        *total += piece.bytes;
      }
    }
    if (inLines && *total == 0) goesOn = lines.moveNothing(o, op);
    return goesOn;
  }

  Shared& shared_;
  LinkState* links_;
  const LaunchArguments& arguments_;
  LaneView view_ = {};
  Operator<Number> operator_;
};

template <class Number, Protocol kProtocol>
TUTTI_DEVICE void interpret(const LaunchArguments& arguments) {
  __shared__ Shared shared;
  extern __shared__ LinkState links[];
  Interpreter<Number, kProtocol>(shared, links, arguments).run();
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
