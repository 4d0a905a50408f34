#include "core/ras_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "base/identity.h"
#include "base/log.h"
#include "base/params.h"
#include "base/random.h"
#include "core/monitor.h"
#include "core/ras_protocol.h"
#include "core/ras_report.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostClients = 16;
constexpr milliseconds kCommandLimit{10000};  // from one command to the next
constexpr milliseconds kAnswerLimit{5000};    // for the ranks, unless TIMEOUT says otherwise; as in NCCL
constexpr milliseconds kFlushLimit{30000};
constexpr milliseconds kSurveyLimit{1000};  // of one communicator
/// Once a process has not answered: it will not do so for its other communicators either.
constexpr milliseconds kNextSurveyLimit{300};

Result<SocketAddress> rasAddress() {
  std::string text = params().rasAddr();
  // Without a look-up: the name need not be in any table.
  if (text.starts_with("localhost:")) text.replace(0, 9, "127.0.0.1");
  return SocketAddress::parse(text);
}

/// Only the user of this process, and root.
bool mayAsk(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

}  // namespace

/// One connection. Used by the service thread only.
struct RasServer::Client {
  uint64_t key = 0;
  UniqueFd fd;
  IoService::Id watch = 0;
  IoService::Id timer = 0;
  RasLines in;
  std::string out;
  size_t outDone = 0;
  bool json = false;
  bool answering = false;
  bool last = false;  // nothing more will be said
  milliseconds limit = kAnswerLimit;
};

/// One STATUS command on its way through the communicators.
struct RasServer::Query {
  std::shared_ptr<Client> client;
  bool verbose = false;
  Clock::time_point end;
  IoService::Id timer = 0;
  std::vector<std::shared_ptr<Monitor>> todo;  // largest last
  std::vector<RankPosition> positions;
  bool finished = false;
};

std::shared_ptr<RasServer> RasServer::ofProcess() {
  if (!params().rasEnable()) return nullptr;
  static std::mutex& mutex = *new std::mutex;
  static std::weak_ptr<RasServer>& known = *new std::weak_ptr<RasServer>;
  static uint64_t owner = 0;
  const std::lock_guard lock(mutex);
  if (owner == forkCount()) {
    if (auto server = known.lock()) {
      server->takePort();
      return server;
    }
  }
  std::shared_ptr<RasServer> server(new RasServer);
  owner = forkCount();
  known = server;
  server->open();
  return server;
}

void RasServer::open() {
  const auto number = randomU64();
  Status status = number.status();
  if (status.isOk()) {
    const std::lock_guard lock(mutex_);
    status = listen(local_, SocketAddress::abstractUnix(
                                fmt::format("{}{}-{:016x}", kRasSocketPrefix, ::getpid(), *number)));
  }
  if (!status.isOk()) logInfo(Subsystem::ras, "tutti-ras cannot ask this process: {}", status.message());
  takePort();
}

void RasServer::takePort() {
  const std::lock_guard lock(mutex_);
  if (port_.fd || !params().rasEnable()) return;
  auto address = rasAddress();
  Status status = address.status();
  if (status.isOk()) status = listen(port_, *address);
  if (status.isOk()) {
    address_ = localAddress(port_.fd.get());
    logInfo(Subsystem::ras, "ncclras and tutti-ras can ask at {}", address_.text());
  } else if (!std::exchange(saidTaken_, true)) {
    logInfo(Subsystem::ras, "NCCL_RAS_ADDR={}: {}; another process of this host answers there, or none",
            params().rasAddr(), status.message());
  }
}

Status RasServer::listen(Listener& listener, const SocketAddress& address) {
  const bool local = address.family() == AF_UNIX;
  TUTTI_ASSIGN(UniqueFd fd, listenOn(address, 128));
  TUTTI_ASSIGN(listener.watch, ioService().add(fd.get(), EPOLLIN,
                                               [weak = weak_from_this(), number = fd.get(), local](uint32_t) {
                                                 if (const auto self = weak.lock())
                                                   self->accept(number, local);
                                               }));
  listener.fd = std::move(fd);
  return Status::ok();
}

RasServer::~RasServer() {
  for (Listener* one : {&local_, &port_}) {
    ioService().remove(one->watch);
    one->fd.reset();
  }
  // Handlers hold weak references only, so none of them works with a client any more.
  for (auto& [key, client] : clients_) {
    ioService().remove(client->watch);
    ioService().remove(client->timer);
  }
}

void RasServer::accept(int listener, bool local) {
  auto fd = acceptFrom(listener);
  if (!fd.isOk() || !*fd) return;
  if (local && !mayAsk(fd->get())) {
    logInfo(Subsystem::ras, "a connection of another user was dropped");
    return;
  }
  if (clients_.size() >= kMostClients) {
    const auto idle = std::find_if(clients_.begin(), clients_.end(),
                                   [](const auto& entry) { return !entry.second->answering; });
    if (idle == clients_.end()) return;
    drop(idle->first);
  }
  auto client = std::make_shared<Client>();
  client->key = nextKey_++;
  client->fd = std::move(*fd);
  const auto key = client->key;
  auto watch = ioService().add(client->fd.get(), EPOLLIN, [weak = weak_from_this(), key](uint32_t events) {
    if (const auto self = weak.lock()) self->ready(key, events);
  });
  if (!watch.isOk()) return;
  client->watch = *watch;
  const auto timer = ioService().addTimer(kCommandLimit, [weak = weak_from_this(), key] {
    if (const auto self = weak.lock()) self->drop(key);
  });
  if (timer.isOk()) client->timer = *timer;
  clients_.emplace(key, std::move(client));
}

void RasServer::drop(uint64_t key) {
  const auto found = clients_.find(key);
  if (found == clients_.end()) return;
  ioService().remove(found->second->watch);
  ioService().remove(found->second->timer);
  found->second->fd.reset();
  clients_.erase(found);
}

void RasServer::ready(uint64_t key, uint32_t events) {
  const auto found = clients_.find(key);
  if (found == clients_.end()) return;
  const std::shared_ptr<Client> client = found->second;
  if ((events & EPOLLOUT) != 0) flush(client);
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0 || !client->fd) return;
  char chunk[4096];
  const ssize_t got = ::recv(client->fd.get(), chunk, sizeof chunk, 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (got <= 0) {
    // A client that has asked may have closed its sending side only.
    if (got == 0 && client->answering) {
      ioService().modify(client->watch, client->out.size() > client->outDone ? EPOLLOUT : 0u);
    } else {
      drop(key);
    }
    return;
  }
  if (client->last || client->answering) return;  // what comes after a question is not heard
  client->in.append({chunk, static_cast<size_t>(got)});
  handle(client);
}

void RasServer::handle(const std::shared_ptr<Client>& client) {
  while (const auto line = client->in.next())
    if (!handleLine(client, *line) || !client->fd) return;
  if (!client->in.overflown()) return;
  logInfo(Subsystem::ras, "a client that sends no lines was dropped: {}",
          printableRasText(client->in.rest()));
  drop(client->key);
}

/// False when no further line is to be handled.
bool RasServer::handleLine(const std::shared_ptr<Client>& client, std::string_view line) {
  using Kind = RasCommand::Kind;
  const RasCommand command = parseRasCommand(line);
  switch (command.kind) {
    case Kind::protocol:
      say(client, "SERVER PROTOCOL 2\n", false);
      return true;
    case Kind::timeout:
      client->limit = command.limit;
      say(client, "OK\n", false);
      return true;
    case Kind::format:
      client->json = command.json;
      say(client, "OK\n", false);
      return true;
    case Kind::status:
      query(client, command.verbose);
      return false;
    case Kind::monitor:
    case Kind::unknown:
      break;
  }
  logInfo(Subsystem::ras, "a client said \"{}\"", printableRasText(line));
  say(client,
      command.kind == Kind::monitor
          ? "ERROR: MONITOR is not served by Tutti\n"
          : "ERROR: unknown command (CLIENT PROTOCOL, TIMEOUT, SET FORMAT, STATUS, VERBOSE STATUS)\n",
      true);
  return false;
}

void RasServer::query(const std::shared_ptr<Client>& client, bool verbose) {
  client->answering = true;
  ioService().remove(client->timer);
  client->timer = 0;
  auto query = std::make_shared<Query>();
  query->client = client;
  query->verbose = verbose;
  query->end = Clock::now() + client->limit;
  std::set<uint64_t> sessions;
  for (auto& monitor : Monitor::all())
    if (sessions.insert(monitor->session()).second) query->todo.push_back(std::move(monitor));
  std::stable_sort(query->todo.begin(), query->todo.end(),
                   [](const auto& a, const auto& b) { return a->ranks() < b->ranks(); });
  // A communicator that ends meanwhile gives no answer.
  const auto timer =
      ioService().addTimer(client->limit + milliseconds(500), [weak = weak_from_this(), query] {
        query->timer = 0;
        if (const auto self = weak.lock()) self->finish(query);
      });
  if (timer.isOk()) query->timer = *timer;
  client->timer = query->timer;
  surveyNext(query);
}

/// Asks about one communicator after the other; one that earlier answers have covered is not asked again.
void RasServer::surveyNext(const std::shared_ptr<Query>& query) {
  while (!query->finished && !query->todo.empty()) {
    const std::shared_ptr<Monitor> monitor = std::move(query->todo.back());
    query->todo.pop_back();
    std::set<int> known;
    for (const RankPosition& one : query->positions)
      if (one.session == monitor->session() && one.state != RankPosition::State::silent)
        known.insert(one.rank);
    if (known.size() == static_cast<size_t>(monitor->ranks())) continue;
    const auto left = std::chrono::duration_cast<milliseconds>(query->end - Clock::now());
    if (left.count() <= 0) break;
    const bool someSilent =
        std::any_of(query->positions.begin(), query->positions.end(),
                    [](const auto& one) { return one.state == RankPosition::State::silent; });
    monitor->survey(true, std::min(left, someSilent ? kNextSurveyLimit : kSurveyLimit),
                    [weak = weak_from_this(), query](std::vector<RankPosition> positions) {
                      const auto self = weak.lock();
                      if (self == nullptr) return;
                      query->positions.insert(query->positions.end(),
                                              std::make_move_iterator(positions.begin()),
                                              std::make_move_iterator(positions.end()));
                      self->surveyNext(query);
                    });
    return;
  }
  finish(query);
}

void RasServer::finish(const std::shared_ptr<Query>& query) {
  if (std::exchange(query->finished, true)) return;
  ioService().remove(query->timer);
  query->client->timer = 0;
  if (!query->client->fd) return;
  say(query->client,
      query->client->json ? rasJson(query->positions) : rasText(query->positions, query->verbose), true);
}

void RasServer::say(const std::shared_ptr<Client>& client, std::string_view text, bool last) {
  client->out.append(text);
  client->last = client->last || last;
  if (last) {
    const auto key = client->key;
    ioService().remove(client->timer);
    const auto timer = ioService().addTimer(kFlushLimit, [weak = weak_from_this(), key] {
      if (const auto self = weak.lock()) self->drop(key);
    });
    client->timer = timer.isOk() ? *timer : 0;
  }
  flush(client);
}

void RasServer::flush(const std::shared_ptr<Client>& client) {
  while (client->fd && client->outDone < client->out.size()) {
    const ssize_t sent = ::send(client->fd.get(), client->out.data() + client->outDone,
                                client->out.size() - client->outDone, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      ioService().modify(client->watch, EPOLLIN | EPOLLOUT);
      return;
    }
    if (sent <= 0) return drop(client->key);
    client->outDone += static_cast<size_t>(sent);
  }
  if (!client->fd) return;
  client->out.clear();
  client->outDone = 0;
  if (client->last) {
    // An orderly end: what the client has sent meanwhile must not turn it into a reset.
    char rest[1024];
    ::shutdown(client->fd.get(), SHUT_WR);
    while (::recv(client->fd.get(), rest, sizeof rest, MSG_DONTWAIT) > 0) continue;
    return drop(client->key);
  }
  ioService().modify(client->watch, EPOLLIN);
}

}  // namespace tutti
