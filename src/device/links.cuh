// The lane's connections: their state lies in shared memory while the lane runs. What each step does with
// them before and after it moves data.
//
//   thread 0    receives: looks at `tail`, posts `head`       thread 32 (0 in a block of one warp) sends
#pragma once

#include "device/waits.cuh"

namespace tutti::device::TUTTI_KERNELS {

TUTTI_DEVICE uint32_t sendingThread() { return blockDim.x > kWarp ? kWarp : 0; }

template <Protocol kProtocol>
TUTTI_DEVICE void loadLinks(const LaneView& view, const Lane& lane, LinkState* states) {
  const Comm& comm = view.comm();
  for (uint32_t i = threadIdx.x; i < lane.linkCount; i += blockDim.x) {
    const Link link = view.program().links()[lane.firstLink + i];
    const uint64_t at = comm.linkIndex(view.channel(), link.port, static_cast<uint32_t>(link.peer));
    LinkState& state = states[i];
    state.peer = link.peer;
    state.known = 0;
    if (link.sends) {
      const Sender& end = comm.senders[at];
      state.data = kProtocol == Protocol::simple ? end.slots
                   : kProtocol == Protocol::ll   ? reinterpret_cast<std::byte*>(end.linesLL)
                                                 : reinterpret_cast<std::byte*>(end.linesLL128);
      state.tail = end.tail;
      state.head = const_cast<uint64_t*>(end.head);
      state.counter = end.sent;
    } else {
      const Receiver& end = comm.receivers[at];
      state.data = const_cast<std::byte*>(kProtocol == Protocol::simple ? end.slots
                                          : kProtocol == Protocol::ll
                                              ? reinterpret_cast<const std::byte*>(end.linesLL)
                                              : reinterpret_cast<const std::byte*>(end.linesLL128));
      state.tail = const_cast<MessageTail*>(end.tail);
      state.head = end.head;
      state.counter = end.received;
    }
    state.count = *state.counter;
  }
}

/// After a barrier behind the lane's last step.
TUTTI_DEVICE void storeLinks(const Lane& lane, const LinkState* states) {
  for (uint32_t i = threadIdx.x; i < lane.linkCount; i += blockDim.x) *states[i].counter = states[i].count;
}

/// Bytes of a message's place among the slots or lines.
template <Protocol kProtocol>
TUTTI_DEVICE uint64_t placeBytes(const Comm& comm) {
  if (kProtocol == Protocol::simple) return comm.slotBytes;
  if (kProtocol == Protocol::ll) return static_cast<uint64_t>(comm.linesOfSlotLL) * sizeof(LineLL);
  return static_cast<uint64_t>(comm.linesOfSlotLL128) * sizeof(LineLL128);
}

/// By the receiving thread. Simple: waits for the message. (Lines are waited for where they are read.)
template <Protocol kProtocol>
TUTTI_DEVICE bool beginReceive(const LaneView& view, LinkState& link) {
  const uint64_t message = link.count;
  if (kProtocol == Protocol::simple) {
    if (link.known <= message) {
      Spin spin(view, WaitFor::data, link.peer);
      link.known = waitBeyond(&link.tail->tail, message, spin);
      if (link.known == 0) return false;
    }
    // Plain: the tail was stored after it, and is not stored again before this message's head.
    view.shared.incomingBytes = link.tail->bytes[message % kFifoDepth];
  }
  view.shared.incoming = link.data + message % kFifoDepth * placeBytes<kProtocol>(view.comm());
  view.shared.incomingNumber = message + 1;
  return true;
}

/// By the sending thread: waits until the place is free.
template <Protocol kProtocol>
TUTTI_DEVICE bool beginSend(const LaneView& view, LinkState& link) {
  const uint64_t message = link.count;
  if (link.known + kFifoDepth <= message) {
    Spin spin(view, WaitFor::room, link.peer);
    link.known = waitBeyond(link.head, message - kFifoDepth, spin);
    if (link.known == 0) return false;
  }
  view.shared.outgoing = link.data + message % kFifoDepth * placeBytes<kProtocol>(view.comm());
  view.shared.outgoingNumber = message + 1;
  return true;
}

/// By the receiving thread, after the barrier behind the movement: the place may be written again.
template <Protocol kProtocol>
TUTTI_DEVICE void endReceive(LinkState& link) {
  ++link.count;
#if !defined(TUTTI_HOST_KERNELS_COMPILATION)
  if (kProtocol != Protocol::simple) {
    // No release, which would wait for all lines that the block has just sent: what was read of the place
    // went into registers before anybody passed the barrier, so this store depends on it.
    storeRelaxed(link.head, link.count);
    return;
  }
#endif
  storeRelease(link.head, link.count);
}

/// By the sending thread, after the barrier behind the movement.
template <Protocol kProtocol>
TUTTI_DEVICE void endSend(LinkState& link, uint64_t bytes) {
  if (kProtocol == Protocol::simple) {
    link.tail->bytes[link.count % kFifoDepth] = static_cast<uint32_t>(bytes);
    if (TUTTI_PLANT == TUTTI_PLANT_EARLY_TAIL) {
      storeRelaxed(&link.tail->tail, link.count + 1);
    } else {
      storeRelease(&link.tail->tail, link.count + 1);
    }
  }
  ++link.count;
}

}  // namespace tutti::device::TUTTI_KERNELS
