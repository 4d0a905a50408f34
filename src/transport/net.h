// What a message transport gives: one direction of one connection, shaped like ncclNet's send and receive
// communicators, so that sockets, verbs and plugins (ncclNet_vN) fit behind the same pump.
//
//   ncclNet                     here
//   isend / irecv / test        isend / irecv / test: up to kNetRequests in flight, completed in order
//   regMr / deregMr             registerMemory / deregisterMemory
//   iflush                      flush
//   connect / accept            made by the transport (socket/connections.h), handed over when usable
//   (polling only)              onEvents and descriptor(): lets a sleeping owner be woken
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "transport/fifo.h"

namespace tutti {

/// Operations that may be in flight on a connection: one for each slot of the ring that it serves.
constexpr uint32_t kNetRequests = kFifoSlots;

/// A registered region (ncclNet's mhandle). Sockets need none.
struct NetMemory {
  void* handle = nullptr;
};

/// Number of an operation: counts 0, 1, 2, ... on each connection.
using NetRequest = uint64_t;

/// One direction: either isend or irecv is used. Messages keep their boundaries and order. No call blocks or
/// allocates. One thread at a time.
class NetConnection {
 public:
  virtual ~NetConnection() = default;

  /// "10.0.0.7:4000": for messages.
  virtual const std::string& peerAddress() const = 0;

  virtual Result<NetMemory> registerMemory(void* base, size_t bytes) = 0;
  virtual void deregisterMemory(NetMemory memory) = 0;

  /// Starts sending `bytes` bytes, which must stay unchanged until the request is done. False when
  /// kNetRequests are in flight already.
  virtual bool isend(const void* data, uint32_t bytes, NetMemory memory) = 0;
  /// Offers a buffer for the next message. False as above. A message longer than the capacity is an error.
  virtual bool irecv(void* buffer, size_t capacity, NetMemory memory) = 0;
  /// Moves what can be moved and tells how many requests (from the first on) are done. An error is final: the
  /// peer is gone, or broke the protocol.
  virtual Status test(uint64_t* done) = 0;
  /// Bytes of the received message of a request that is done (of the last kNetRequests).
  virtual uint32_t receivedBytes(NetRequest request) const = 0;
  /// After a receive into memory of a device: makes the data visible to it. Host memory needs nothing.
  virtual Status flush(void* buffer, size_t bytes, NetMemory memory) = 0;

  /// A descriptor to watch with edge-triggered epoll for `watchedEvents`, -1 when there is none (then the
  /// owner polls); what epoll reports must be handed to onEvents.
  virtual int descriptor() const = 0;
  virtual uint32_t watchedEvents() const = 0;
  virtual void onEvents(uint32_t events) = 0;
  /// The far end has said that it needs nothing more and sends nothing more.
  virtual bool peerLeft() const = 0;
  /// Tells the far end the same, best effort. Nothing else but the destructor may follow.
  virtual void sayGoodbye() = 0;
};

}  // namespace tutti
