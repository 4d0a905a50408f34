#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <vector>

#include "transport/socket/connection.h"

namespace tutti {
namespace {

/// A receiver (or sender) at one end of a stream, raw bytes at the other.
template <typename Connection>
struct Wire {
  UniqueFd raw;
  std::unique_ptr<Connection> connection;

  Wire() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    raw.reset(ends[1]);
    connection = std::make_unique<Connection>(UniqueFd(ends[0]), "10.0.0.7:4000");
  }
  void write(const std::string& bytes) {
    ASSERT_EQ(::send(raw.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    connection->onEvents(EPOLLIN);
  }
  void close() {
    raw.reset();
    connection->onEvents(EPOLLIN | EPOLLRDHUP | EPOLLHUP);
  }
};

std::string header(uint32_t sequence, uint32_t length) {
  const StreamHeader header{sequence, length};
  return {reinterpret_cast<const char*>(&header), sizeof(header)};
}

TEST(SocketReceiver, PutsMessagesTogetherHoweverTheyArrive) {
  Wire<SocketReceiver> wire;
  std::string stream;
  std::vector<std::string> messages;
  for (uint32_t i = 0; i < 6; ++i) {
    messages.push_back(std::string(i * 1777 % 6000, static_cast<char>('a' + i)));  // the first is empty
    stream += header(i, static_cast<uint32_t>(messages.back().size())) + messages.back();
  }
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{4096}, stream.size()}) {
    Wire<SocketReceiver> fresh;
    std::vector<std::string> buffers(messages.size(), std::string(6000, '-'));
    for (auto& buffer : buffers) ASSERT_TRUE(fresh.connection->irecv(buffer.data(), buffer.size(), {}));
    uint64_t done = 0;
    for (size_t at = 0; at < stream.size(); at += piece) {
      fresh.write(stream.substr(at, piece));
      ASSERT_TRUE(fresh.connection->test(&done).isOk());
    }
    ASSERT_EQ(done, messages.size()) << "pieces of " << piece;
    for (size_t i = 0; i < messages.size(); ++i) {
      EXPECT_EQ(fresh.connection->receivedBytes(i), messages[i].size());
      EXPECT_EQ(buffers[i].substr(0, messages[i].size()), messages[i]);
      EXPECT_EQ(buffers[i].find_first_not_of('-', messages[i].size()), std::string::npos)
          << "wrote beyond it";
    }
  }
}

TEST(SocketReceiver, ReadsNothingAheadOfItsBuffersAndKeepsTheOrder) {
  Wire<SocketReceiver> wire;
  std::string buffer(100, '-');
  wire.write(header(0, 3) + "abc" + header(1, 3) + "def");
  uint64_t done = 0;
  ASSERT_TRUE(wire.connection->test(&done).isOk());
  EXPECT_EQ(done, 0U) << "no buffer was offered";
  for (const char* expected : {"abc", "def"}) {
    ASSERT_TRUE(wire.connection->irecv(buffer.data(), buffer.size(), {}));
    ASSERT_TRUE(wire.connection->test(&done).isOk());
    EXPECT_EQ(buffer.substr(0, 3), expected);
  }
  EXPECT_EQ(done, 2U);
}

TEST(SocketReceiver, OffersOnlyAsManyBuffersAsThereAreRequests) {
  Wire<SocketReceiver> wire;
  std::string buffer(8, '-');
  for (uint32_t i = 0; i < kNetRequests; ++i) EXPECT_TRUE(wire.connection->irecv(buffer.data(), 8, {}));
  EXPECT_FALSE(wire.connection->irecv(buffer.data(), 8, {}));
}

Status statusAfter(const std::string& bytes, bool close) {
  Wire<SocketReceiver> wire;
  std::string buffer(16, '-');
  EXPECT_TRUE(wire.connection->irecv(buffer.data(), buffer.size(), {}));
  wire.write(bytes);
  if (close) wire.close();
  uint64_t done = 0;
  return wire.connection->test(&done);
}

TEST(SocketReceiver, RefusesBrokenStreams) {
  EXPECT_TRUE(statusAfter(header(0, 16), false).isOk());
  EXPECT_FALSE(statusAfter(header(0, 17), false).isOk()) << "longer than the buffer";
  EXPECT_FALSE(statusAfter(header(1, 4), false).isOk()) << "wrong sequence";
  const Status garbage = statusAfter("GET / HTTP/1.1\r\n\r\n", false);
  ASSERT_FALSE(garbage.isOk());
  EXPECT_NE(garbage.message().find("10.0.0.7:4000"), std::string::npos);
}

TEST(SocketReceiver, TellsDeathFromGoodbye) {
  const Status died = statusAfter("", true);
  ASSERT_FALSE(died.isOk());
  EXPECT_EQ(died.code(), ncclRemoteError);
  EXPECT_FALSE(statusAfter(header(0, 4) + "ab", true).isOk()) << "in the middle of a message";
  EXPECT_TRUE(statusAfter(header(0, kGoodbye), true).isOk());
}

TEST(SocketReceiver, DeliversWhatCameBeforeTheEnd) {
  Wire<SocketReceiver> wire;
  std::string buffers[2] = {std::string(4, '-'), std::string(4, '-')};
  for (auto& buffer : buffers) ASSERT_TRUE(wire.connection->irecv(buffer.data(), 4, {}));
  wire.write(header(0, 4) + "abcd");
  wire.close();
  uint64_t done = 0;
  EXPECT_FALSE(wire.connection->test(&done).isOk());
  EXPECT_EQ(done, 1U);
  EXPECT_EQ(buffers[0], "abcd");
}

/// A receiver behind TCP, woken by an edge-triggered epoll as the transport's is.
struct WatchedStream {
  UniqueFd raw;
  std::unique_ptr<SocketReceiver> receiver;
  UniqueFd epoll{::epoll_create1(EPOLL_CLOEXEC)};
  int events = 0;
  uint64_t done = 0;
  Status status;

  WatchedStream() {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    raw.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(raw.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    const int one = 1;
    ::setsockopt(raw.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    UniqueFd end(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    receiver = std::make_unique<SocketReceiver>(std::move(end), "10.0.0.7:4000");
    epoll_event event{};
    event.events = receiver->watchedEvents() | EPOLLET;
    EXPECT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, receiver->descriptor(), &event), 0);
    look(0);
  }
  void write(const std::string& bytes) const {
    ASSERT_EQ(::send(raw.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  /// Takes what epoll has within `milliseconds`, and moves what can be moved.
  bool look(int milliseconds) {
    epoll_event event{};
    const bool found = ::epoll_wait(epoll.get(), &event, 1, milliseconds) == 1;
    if (found) receiver->onEvents(event.events);
    events += found ? 1 : 0;
    status = receiver->test(&done);
    return found;
  }
  /// Until `messages` have come; false when an event did not come within five seconds.
  bool until(uint64_t messages) {
    while (done < messages && status.isOk())
      if (!look(5000)) return false;
    return status.isOk();
  }
};

TEST(SocketReceiver, IsWokenForBatchesOfALargeMessageAndForEverySmallOne) {
  WatchedStream stream;
  constexpr size_t kLarge = 1 << 20;
  std::string large(kLarge, '-');
  std::string small(64, '-');
  for (uint32_t round = 0; round < 3; ++round) {
    ASSERT_TRUE(stream.receiver->irecv(large.data(), large.size(), {}));
    ASSERT_TRUE(stream.receiver->irecv(small.data(), small.size(), {}));
    stream.look(0);
    const std::string text(kLarge, static_cast<char>('a' + round));
    stream.write(header(2 * round, kLarge));
    stream.look(1000);
    const int before = stream.events;
    constexpr size_t kPiece = 8192;
    for (size_t at = 0; at < kLarge; at += kPiece) {
      stream.write(text.substr(at, kPiece));
      stream.look(0);
    }
    ASSERT_TRUE(stream.until(2 * round + 1)) << stream.done << " messages of " << 2 * round + 1;
    EXPECT_EQ(large, text);
    EXPECT_LT(stream.events - before, 40) << "of " << kLarge / kPiece << " pieces";
    stream.write(header(2 * round + 1, 5) + "small");
    ASSERT_TRUE(stream.until(2 * round + 2)) << stream.done << " messages of " << 2 * round + 2;
    EXPECT_EQ(small.substr(0, 5), "small");
  }
}

TEST(SocketReceiver, IsWokenByTheEndInTheMiddleOfALargeMessage) {
  WatchedStream stream;
  std::string buffer(1 << 20, '-');
  ASSERT_TRUE(stream.receiver->irecv(buffer.data(), buffer.size(), {}));
  stream.write(header(0, 1 << 20) + std::string(100000, 'x'));
  stream.look(1000);
  stream.look(50);
  ASSERT_TRUE(stream.status.isOk());
  stream.write("a few bytes more");
  stream.raw.reset();
  while (stream.status.isOk() && stream.look(5000)) continue;
  EXPECT_EQ(stream.status.code(), ncclRemoteError);
}

TEST(SocketSender, WritesWhatTheReceiverReads) {
  Wire<SocketSender> wire;
  SocketReceiver receiver(std::move(wire.raw), "peer");
  std::vector<std::string> sent, got(kNetRequests, std::string(1 << 20, '-'));
  for (uint32_t i = 0; i < kNetRequests; ++i) {
    sent.push_back(std::string(i * 150001 % (1 << 20), static_cast<char>('a' + i)));
    ASSERT_TRUE(wire.connection->isend(sent.back().data(), static_cast<uint32_t>(sent.back().size()), {}));
    ASSERT_TRUE(receiver.irecv(got[i].data(), got[i].size(), {}));
  }
  EXPECT_FALSE(wire.connection->isend("x", 1, {})) << "all requests are in use";
  uint64_t out = 0;
  uint64_t in = 0;
  for (int rounds = 0; in < kNetRequests && rounds < 100000; ++rounds) {
    wire.connection->onEvents(EPOLLOUT);
    receiver.onEvents(EPOLLIN);
    ASSERT_TRUE(wire.connection->test(&out).isOk());
    ASSERT_TRUE(receiver.test(&in).isOk());
  }
  ASSERT_EQ(in, kNetRequests);
  EXPECT_EQ(out, kNetRequests);
  for (uint32_t i = 0; i < kNetRequests; ++i) EXPECT_EQ(got[i].substr(0, receiver.receivedBytes(i)), sent[i]);
  wire.connection->sayGoodbye();
  std::string more(8, '-');
  ASSERT_TRUE(receiver.irecv(more.data(), more.size(), {}));
  receiver.onEvents(EPOLLIN);
  ASSERT_TRUE(receiver.test(&in).isOk());
  EXPECT_TRUE(receiver.peerLeft());
}

TEST(SocketSender, IsNotKilledWhenItWritesToAPeerThatHasJustDied) {
  Wire<SocketSender> wire;
  uint64_t done = 0;
  ASSERT_TRUE(wire.connection->test(&done).isOk());
  wire.raw.reset();  // and no event has told yet
  const std::string text = "nobody reads this";
  ASSERT_TRUE(wire.connection->isend(text.data(), static_cast<uint32_t>(text.size()), {}));
  EXPECT_EQ(wire.connection->test(&done).code(), ncclRemoteError);
}

TEST(SocketSender, NoticesThatTheReceiverDiedLeftOrTalks) {
  uint64_t done = 0;
  {
    Wire<SocketSender> wire;
    ASSERT_TRUE(wire.connection->test(&done).isOk());
    wire.close();
    EXPECT_FALSE(wire.connection->test(&done).isOk());
  }
  {
    Wire<SocketSender> wire;
    wire.write(header(0, kGoodbye));
    wire.close();
    EXPECT_TRUE(wire.connection->test(&done).isOk());
    EXPECT_TRUE(wire.connection->peerLeft());
    ASSERT_TRUE(wire.connection->isend("x", 1, {}));
    EXPECT_FALSE(wire.connection->test(&done).isOk()) << "cannot be delivered any more";
  }
  {
    Wire<SocketSender> wire;
    wire.write(header(0, 5));
    EXPECT_FALSE(wire.connection->test(&done).isOk());
  }
}

}  // namespace
}  // namespace tutti
