#include "bootstrap/link.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/handshake.h"

namespace tutti {

Result<std::shared_ptr<Link>> Link::open(UniqueFd fd, Callbacks callbacks) {
  std::shared_ptr<Link> link(new Link(std::move(fd), std::move(callbacks)));
  const std::lock_guard lock(link->mutex_);  // ready() waits until watch_ is known
  auto watch = ioService().add(link->fd_.get(), EPOLLIN, [link](uint32_t events) { link->ready(events); });
  if (!watch.isOk()) return watch.status();
  link->watch_ = *watch;
  return link;
}

bool Link::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

size_t Link::queuedBytes() const {
  const std::lock_guard lock(mutex_);
  return out_.size() - outDone_;
}

Status Link::send(uint16_t type, std::string_view body) {
  if (body.size() > kMaxFrame)
    return internalError("control message of {} bytes; {} is the limit", body.size(), kMaxFrame);
  const std::lock_guard lock(mutex_);
  if (closed_ || finishing_) return remoteError("the connection is closed");
  const bool idle = out_.empty();
  out_ += makeFrame(type, body);
  if (idle) flushLocked();
  if (idle && !out_.empty()) ioService().modify(watch_, EPOLLIN | EPOLLOUT);
  return Status::ok();
}

/// Sends what the socket takes. A broken connection is noticed by the service thread, which reads its end.
void Link::flushLocked() {
  while (outDone_ < out_.size()) {
    const ssize_t sent =
        ::send(fd_.get(), out_.data() + outDone_, out_.size() - outDone_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      outDone_ += static_cast<size_t>(sent);
    } else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return;
    } else if (sent < 0 && errno != EINTR) {
      break;  // dropped: nobody will read it
    }
  }
  out_.clear();
  outDone_ = 0;
  if (finishing_ && !halfClosed_) {
    halfClosed_ = true;
    ::shutdown(fd_.get(), SHUT_WR);
  }
}

void Link::finish(std::chrono::milliseconds limit) {
  const std::lock_guard lock(mutex_);
  if (closed_ || finishing_) return;
  finishing_ = true;
  if (out_.empty()) {
    flushLocked();
  }
  auto timer = ioService().addTimer(limit, [self = shared_from_this()] {
    self->end({ncclSystemError, "the peer did not close the connection in time"});
  });
  if (timer.isOk()) timer_ = *timer;
}

void Link::ready(uint32_t events) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    if ((events & EPOLLOUT) != 0) {
      flushLocked();
      if (out_.empty()) ioService().modify(watch_, EPOLLIN);
    }
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  if (Status status = readFrames(); !status.isOk()) end(status);
}

/// Reads once and passes on the frames that are complete. Not ok when the connection has ended.
Status Link::readFrames() {
  char chunk[65536];
  ssize_t got = 0;
  int error = 0;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Status::ok();
    got = ::recv(fd_.get(), chunk, sizeof chunk, MSG_DONTWAIT);
    error = errno;
  }
  if (got == 0) return remoteError("connection closed");
  if (got < 0) {
    if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) return Status::ok();
    if (error == ECONNRESET) return remoteError("connection closed (reset)");
    return remoteError("connection lost: {}", ::strerrordesc_np(error));
  }
  in_.append(chunk, static_cast<size_t>(got));
  size_t at = 0;
  while (in_.size() - at >= FrameHeader::kBytes) {
    TUTTI_ASSIGN(const FrameHeader header,
                 FrameHeader::decode(std::string_view(in_).substr(at, FrameHeader::kBytes), kMaxFrame));
    if (in_.size() - at < FrameHeader::kBytes + header.length) break;
    std::string body = in_.substr(at + FrameHeader::kBytes, header.length);
    at += FrameHeader::kBytes + header.length;
    callbacks_.onFrame(header.type, std::move(body));
    if (closed()) return Status::ok();  // by the callback
  }
  in_.erase(0, at);
  return Status::ok();
}

/// On the service thread.
void Link::end(const Status& why) {
  const auto self = shared_from_this();
  IoService::Id watch = 0, timer = 0;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    watch = watch_;
    timer = timer_;
  }
  ioService().remove(timer);
  ioService().remove(watch);
  {
    const std::lock_guard lock(mutex_);
    fd_.reset();
  }
  if (callbacks_.onClosed) callbacks_.onClosed(why);
  callbacks_ = {};
}

void Link::close() {
  const auto self = shared_from_this();
  IoService::Id watch = 0, timer = 0;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    watch = watch_;
    timer = timer_;
  }
  ioService().remove(timer);
  ioService().remove(watch);
  const std::lock_guard lock(mutex_);
  fd_.reset();
}

}  // namespace tutti
