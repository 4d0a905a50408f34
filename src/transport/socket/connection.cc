#include "transport/socket/connection.h"

#include <endian.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti {

Status SocketConnection::closedError() const {
  return remoteError("{} closed its data connection without goodbye: its process has probably died",
                     peerAddress_);
}

Status SocketConnection::streamError(const std::string& what) const {
  return remoteError("data connection with {}: {}", peerAddress_, what);
}

void SocketConnection::writeGoodbye(uint64_t sequence) {
  const StreamHeader header{htole32(static_cast<uint32_t>(sequence)), htole32(kGoodbye)};
  // Best effort: when the buffer has no room, the peer finds the connection closed instead.
  (void)::send(fd_.get(), &header, sizeof(header), MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool SocketSender::isend(const void* data, uint32_t bytes, NetMemory) {
  if (posted_ - done_ >= kNetRequests) return false;
  operations_[posted_ % kNetRequests] = {
      {htole32(static_cast<uint32_t>(posted_)), htole32(bytes)}, static_cast<const std::byte*>(data), bytes};
  ++posted_;
  return true;
}

uint32_t SocketSender::watchedEvents() const { return EPOLLOUT | EPOLLIN | EPOLLRDHUP; }

void SocketSender::onEvents(uint32_t events) {
  if ((events & EPOLLOUT) != 0) blocked_ = false;
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) look_ = true;
}

Status SocketSender::test(uint64_t* done) {
  if (look_) TUTTI_TRY(readReverse());
  if (done_ < posted_ && !blocked_) TUTTI_TRY(writePending());
  *done = done_;
  return Status::ok();
}

Status SocketSender::writePending() {
  while (done_ < posted_) {
    std::array<iovec, 2 * kNetRequests> parts;
    size_t count = 0;
    size_t skip = written_;
    for (uint64_t i = done_; i < posted_; ++i) {
      Operation& operation = operations_[i % kNetRequests];
      if (skip < sizeof(StreamHeader)) {
        parts[count++] = {reinterpret_cast<std::byte*>(&operation.header) + skip,
                          sizeof(StreamHeader) - skip};
        skip = 0;
      } else {
        skip -= sizeof(StreamHeader);
      }
      if (operation.bytes > skip)
        parts[count++] = {const_cast<std::byte*>(operation.data) + skip, operation.bytes - skip};
      skip = 0;
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t written = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) {
        blocked_ = true;
        return Status::ok();
      }
      if (errno == EPIPE || errno == ECONNRESET) {
        TUTTI_TRY(readReverse());  // a goodbye may be waiting there
        if (!peerLeft_) return closedError();
        return streamError("the peer has left, but messages for it were not delivered");
      }
      return streamError(systemError(errno, "send").message());
    }
    advance(static_cast<size_t>(written));
  }
  return Status::ok();
}

void SocketSender::advance(size_t written) {
  written_ += written;
  while (done_ < posted_) {
    const size_t whole = sizeof(StreamHeader) + operations_[done_ % kNetRequests].bytes;
    if (written_ < whole) return;
    written_ -= whole;
    ++done_;
  }
}

Status SocketSender::readReverse() {
  while (!peerLeft_) {
    auto* at = reinterpret_cast<std::byte*>(&reverse_) + reverseBytes_;
    const ssize_t got = ::recv(fd_.get(), at, sizeof(reverse_) - reverseBytes_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got < 0 && errno != ECONNRESET) return streamError(systemError(errno, "receive").message());
    if (got <= 0) return closedError();
    reverseBytes_ += static_cast<size_t>(got);
    if (reverseBytes_ < sizeof(reverse_)) continue;
    if (le32toh(reverse_.length) != kGoodbye)
      return streamError("unexpected bytes where only a goodbye may come");
    peerLeft_ = true;
  }
  look_ = false;
  return Status::ok();
}

void SocketSender::sayGoodbye() {
  // In the middle of a message a goodbye would be payload.
  if (done_ == posted_) writeGoodbye(posted_);
}

bool SocketReceiver::irecv(void* buffer, size_t capacity, NetMemory) {
  if (posted_ - done_ >= kNetRequests) return false;
  operations_[posted_ % kNetRequests] = {static_cast<std::byte*>(buffer), capacity, 0, 0};
  ++posted_;
  return true;
}

uint32_t SocketReceiver::watchedEvents() const { return EPOLLIN | EPOLLRDHUP; }

void SocketReceiver::onEvents(uint32_t events) {
  readable_ = true;
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) closing_ = true;
}

Status SocketReceiver::test(uint64_t* done) {
  const Status status = drain();
  *done = done_;  // also after an error: messages that came before it count
  return status;
}

Status SocketReceiver::drain() {
  // Without a buffer for the next message nothing is read: the stream's own flow control holds the sender.
  while (done_ < posted_ && !peerLeft_) {
    TUTTI_TRY(consumeStage());
    if (done_ == posted_ || peerLeft_) break;
    if (!readable_) askForBatch();
    if (!readable_) break;
    TUTTI_TRY(readMore());
  }
  return Status::ok();
}

/// Takes headers and payload out of the stage until it is empty, ends in the middle of a header, or no buffer
/// is left.
Status SocketReceiver::consumeStage() {
  while (done_ < posted_ && !peerLeft_) {
    if (!inMessage_) {
      if (stageEnd_ - stageBegin_ < sizeof(StreamHeader)) break;
      TUTTI_TRY(beginMessage());
      continue;
    }
    Operation& operation = operations_[done_ % kNetRequests];
    const size_t bytes = std::min<size_t>(operation.length - operation.received, stageEnd_ - stageBegin_);
    std::memcpy(operation.buffer + operation.received, stage_.data() + stageBegin_, bytes);
    stageBegin_ += bytes;
    operation.received += static_cast<uint32_t>(bytes);
    if (operation.received < operation.length) break;
    inMessage_ = false;
    ++done_;
  }
  if (stageBegin_ == stageEnd_) stageBegin_ = stageEnd_ = 0;
  return Status::ok();
}

Status SocketReceiver::beginMessage() {
  StreamHeader header;
  std::memcpy(&header, stage_.data() + stageBegin_, sizeof(header));
  stageBegin_ += sizeof(header);
  header = {le32toh(header.sequence), le32toh(header.length)};
  const auto expected = static_cast<uint32_t>(done_);
  if (header.sequence != expected)
    return streamError(
        fmt::format("message {} came where {} was due: the stream is broken", header.sequence, expected));
  if (header.length == kGoodbye) {
    peerLeft_ = true;
    return Status::ok();
  }
  Operation& operation = operations_[done_ % kNetRequests];
  if (header.length > operation.capacity)
    return streamError(fmt::format("message {} has {} bytes, more than the {} that a slot holds",
                                   header.sequence, header.length, operation.capacity));
  operation.length = header.length;
  operation.received = 0;
  inMessage_ = true;
  return Status::ok();
}

Status SocketReceiver::readMore() {
  // Here the stage holds at most a piece of a header: move it to the front, read behind it.
  std::memmove(stage_.data(), stage_.data() + stageBegin_, stageEnd_ - stageBegin_);
  stageEnd_ -= stageBegin_;
  stageBegin_ = 0;

  std::array<iovec, 2> parts;
  size_t count = 0;
  size_t payload = 0;
  Operation& operation = operations_[done_ % kNetRequests];
  if (inMessage_) {
    payload = operation.length - operation.received;
    parts[count++] = {operation.buffer + operation.received, payload};
  }
  const size_t room = kStageBytes - stageEnd_;
  parts[count++] = {stage_.data() + stageEnd_, room};
  const ssize_t got = ::readv(fd_.get(), parts.data(), static_cast<int>(count));
  if (got < 0) {
    if (errno == EINTR) return Status::ok();
    if (errno == EAGAIN) {
      readable_ = false;
      return Status::ok();
    }
    if (errno == ECONNRESET) return closedError();
    return streamError(systemError(errno, "receive").message());
  }
  if (got == 0) return closedError();
  // A short read has emptied the queue (epoll(7)); the next arrival is a new event.
  if (static_cast<size_t>(got) < payload + room && !closing_) readable_ = false;
  const size_t direct = std::min(static_cast<size_t>(got), payload);
  operation.received += static_cast<uint32_t>(direct);
  stageEnd_ += static_cast<size_t>(got) - direct;
  if (inMessage_ && operation.received == operation.length) {
    inMessage_ = false;
    ++done_;
  }
  return Status::ok();
}

/// Sets from how many bytes on the kernel reports the stream as readable. In the middle of a large message a
/// report of every arriving segment would cost two wake-ups (service thread, rank) each. An ending stream is
/// reported in any case, and so is one whose window is full.
void SocketReceiver::askForBatch() {
  int mark = 1;
  if (inMessage_) {
    const Operation& operation = operations_[done_ % kNetRequests];
    const uint32_t missing = operation.length - operation.received;
    if (missing >= kLeastBatch) mark = static_cast<int>(std::min(missing, kBatch));
  }
  if (mark == lowWater_) return;
  // Best effort: without it there are more events.
  if (::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof(mark)) != 0) return;
  // What came before the mark was lowered may have caused no event (kernels before 4.18).
  if (mark < lowWater_) readable_ = true;
  lowWater_ = mark;
}

void SocketReceiver::sayGoodbye() { writeGoodbye(done_); }

}  // namespace tutti
