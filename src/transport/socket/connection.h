// Message connections over TCP. One stream carries one direction of one (source, destination, channel, port):
//
//   sender   | seq 0, len | payload | seq 1, len | payload | ... | seq n, GOODBYE |   ---->   receiver
//            <----   | seq, GOODBYE |   (nothing else ever comes back)
//
// The header (8 bytes, little-endian) is checked: a wrong sequence number or a length beyond the buffer means
// that the stream is broken, and ends it. A stream that ends without GOODBYE means that the peer died.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/unique_fd.h"
#include "transport/net.h"

namespace tutti {

/// Length in the header that says goodbye.
constexpr uint32_t kGoodbye = 0xffffffffU;

/// On the wire, little-endian.
struct StreamHeader {
  uint32_t sequence = 0;  // low bits of the message's number
  uint32_t length = 0;
};
static_assert(sizeof(StreamHeader) == 8);

/// What both ends have in common.
class SocketConnection : public NetConnection {
 public:
  SocketConnection(UniqueFd fd, std::string peerAddress)
      : fd_(std::move(fd)), peerAddress_(std::move(peerAddress)) {}

  const std::string& peerAddress() const override { return peerAddress_; }
  Result<NetMemory> registerMemory(void*, size_t) override { return NetMemory{}; }
  void deregisterMemory(NetMemory) override {}
  Status flush(void*, size_t, NetMemory) override { return Status::ok(); }
  int descriptor() const override { return fd_.get(); }
  bool peerLeft() const override { return peerLeft_; }

 protected:
  Status closedError() const;
  Status streamError(const std::string& what) const;
  void writeGoodbye(uint64_t sequence);

  UniqueFd fd_;
  std::string peerAddress_;
  bool peerLeft_ = false;
};

class SocketSender final : public SocketConnection {
 public:
  using SocketConnection::SocketConnection;

  bool isend(const void* data, uint32_t bytes, NetMemory memory) override;
  bool irecv(void*, size_t, NetMemory) override { return false; }
  Status test(uint64_t* done) override;
  uint32_t receivedBytes(NetRequest) const override { return 0; }
  uint32_t watchedEvents() const override;
  void onEvents(uint32_t events) override;
  void sayGoodbye() override;

 private:
  struct Operation {
    StreamHeader header;
    const std::byte* data = nullptr;
    uint32_t bytes = 0;
  };
  Status writePending();
  void advance(size_t written);
  Status readReverse();

  std::array<Operation, kNetRequests> operations_;
  uint64_t posted_ = 0;
  uint64_t done_ = 0;
  size_t written_ = 0;    // of operation done_, header included
  bool blocked_ = false;  // the kernel's buffer was full; an event says when it has room
  bool look_ = true;      // something may have come on the reverse direction
  size_t reverseBytes_ = 0;
  StreamHeader reverse_;
};

class SocketReceiver final : public SocketConnection {
 public:
  using SocketConnection::SocketConnection;

  bool isend(const void*, uint32_t, NetMemory) override { return false; }
  bool irecv(void* buffer, size_t capacity, NetMemory memory) override;
  Status test(uint64_t* done) override;
  uint32_t receivedBytes(NetRequest request) const override {
    return operations_[request % kNetRequests].received;
  }
  uint32_t watchedEvents() const override;
  void onEvents(uint32_t events) override;
  void sayGoodbye() override;

 private:
  struct Operation {
    std::byte* buffer = nullptr;
    size_t capacity = 0;
    uint32_t length = 0;  // from the header
    uint32_t received = 0;
  };
  Status drain();
  Status consumeStage();
  Status beginMessage();
  Status readMore();
  void askForBatch();

  static constexpr uint32_t kBatch = 256 * 1024;      // of a message, for one wake-up
  static constexpr uint32_t kLeastBatch = 16 * 1024;  // less is left to come by itself

  std::array<Operation, kNetRequests> operations_;
  uint64_t posted_ = 0;
  uint64_t done_ = 0;
  bool inMessage_ = false;  // the header of message done_ has been read
  bool readable_ = true;    // the kernel may have bytes; else an event says when
  bool closing_ = false;    // the peer has shut its end: read to the end of file, whatever comes short

  int lowWater_ = 1;  // SO_RCVLOWAT

  // Small messages are read many at a time through the stage; payload of large ones goes straight to its
  // buffer, and only what follows it in the same read lands here.
  static constexpr size_t kStageBytes = 4096;
  std::array<std::byte, kStageBytes> stage_;
  size_t stageBegin_ = 0;
  size_t stageEnd_ = 0;
};

}  // namespace tutti
