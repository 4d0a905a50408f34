#include "core/position.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/datatype.h"
#include "base/fnv.h"

namespace tutti {
namespace {

constexpr size_t kMostWaits = 8;

/// Never 0.
uint64_t digest(const std::vector<size_t>& counts) { return fnv1a(counts) | 1; }

CallName::Operator operatorOf(const OperatorUse& use) {
  if (use.ownScalar) return CallName::Operator::own;
  if (use.spec.hasScale || use.spec.divisor != 1) return CallName::Operator::average;
  switch (use.spec.op) {
    case Reduction::sum:
      return CallName::Operator::sum;
    case Reduction::prod:
      return CallName::Operator::prod;
    case Reduction::max:
      return CallName::Operator::max;
    case Reduction::min:
      return CallName::Operator::min;
  }
  return CallName::Operator::none;
}

const char* nameOf(CallName::Operator op) {
  static constexpr const char* kNames[] = {"", "sum", "prod", "max", "min", "average", "PreMulSum"};
  return kNames[static_cast<size_t>(op)];
}

}  // namespace

CallName CallName::of(const Operation& operation) {
  CallName name;
  name.root = operation.root;
  name.count = operation.count;
  if (operation.kind != Operation::Kind::collective) {
    name.kind = operation.kind == Operation::Kind::recv ? Kind::recv : Kind::send;
    return name;
  }
  name.kind = Kind::collective;
  if (operation.blocks != nullptr) name.blocks = digest(operation.blocks->counts);
  name.collective = operation.collective;
  name.type = operation.type;
  if (isReduction(operation.collective)) name.op = operatorOf(operation.reduction);
  return name;
}

void CallName::encode(WireWriter& out) const {
  out.u8(static_cast<uint8_t>(kind)).u8(static_cast<uint8_t>(collective));
  out.u8(static_cast<uint8_t>(type)).u8(static_cast<uint8_t>(op));
  out.i32(root).u64(count).u64(blocks);
}

CallName CallName::decode(WireReader& in) {
  CallName name;
  const uint8_t kind = in.u8();
  const uint8_t collective = in.u8();
  const uint8_t type = in.u8();
  const uint8_t op = in.u8();
  name.root = in.i32();
  name.count = in.u64();
  name.blocks = in.u64();
  if (kind > static_cast<uint8_t>(Kind::waitSignal) ||
      collective > static_cast<uint8_t>(Collective::sendRecv) || type >= ncclNumTypes ||
      op > static_cast<uint8_t>(Operator::own))
    return {};
  name.kind = static_cast<Kind>(kind);
  name.collective = static_cast<Collective>(collective);
  name.type = static_cast<ncclDataType_t>(type);
  name.op = static_cast<Operator>(op);
  return name;
}

uint64_t CallName::bytes() const {
  if (kind == Kind::collective) return count * sizeOf(type);
  return kind == Kind::send || kind == Kind::recv ? count : 0;
}

std::string CallName::text() const {
  switch (kind) {
    case Kind::none:
      return "nothing";
    case Kind::send:
      return root < 0 ? fmt::format("copy of {} bytes", count)
                      : fmt::format("Send of {} bytes to rank {}", count, root);
    case Kind::recv:
      return fmt::format("Recv of {} bytes from rank {}", count, root);
    case Kind::waitSignal:
      return fmt::format("WaitSignal for signal {} of rank {}", count, root);
    case Kind::collective:
      break;
  }
  std::string text = fmt::format("{} of {} x {}", name(collective), count, tutti::nameOf(type));
  std::string more = nameOf(op);
  if (hasRoot(collective)) more += fmt::format("{}root {}", more.empty() ? "" : ", ", root);
  if (blocks != 0)
    more += fmt::format("{}counts {:08x}", more.empty() ? "" : ", ", static_cast<uint32_t>(blocks));
  return more.empty() ? text : text + " (" + more + ")";
}

void RankPosition::encode(WireWriter& out) const {
  out.u64(session).string(communicator).i32(ranks).i32(rank).string(host).u64(hostKey);
  out.i64(pid).i32(device);
  out.u8(static_cast<uint8_t>(state)).u64(collectivesCalled).u64(messagesCalled).u64(collective);
  out.u32(messages);
  call.encode(out);
  out.u64(quietMs).string(note);
  const size_t count = std::min(waits.size(), kMostWaits);
  out.u8(static_cast<uint8_t>(count));
  for (size_t i = 0; i < count; ++i) {
    const WaitFor& wait = waits[i];
    out.i32(wait.peer).u8(static_cast<uint8_t>(wait.what));
    out.u64(wait.step).u64(wait.steps).u64(wait.slice).u64(wait.slices);
  }
}

bool RankPosition::decode(WireReader& in, RankPosition& position) {
  position.session = in.u64();
  position.communicator = std::string(in.string());
  position.ranks = in.i32();
  position.rank = in.i32();
  position.host = std::string(in.string());
  position.hostKey = in.u64();
  position.pid = in.i64();
  position.device = in.i32();
  const uint8_t state = in.u8();
  position.collectivesCalled = in.u64();
  position.messagesCalled = in.u64();
  position.collective = in.u64();
  position.messages = in.u32();
  position.call = CallName::decode(in);
  position.quietMs = in.u64();
  position.note = std::string(in.string());
  const size_t count = in.u8();
  if (!in.ok() || state > static_cast<uint8_t>(State::silent) || count > kMostWaits || position.ranks < 1 ||
      position.rank < 0 || position.rank >= position.ranks)
    return false;
  position.state = static_cast<State>(state);
  for (size_t i = 0; i < count; ++i) {
    WaitFor wait;
    wait.peer = in.i32();
    const uint8_t what = in.u8();
    wait.step = in.u64();
    wait.steps = in.u64();
    wait.slice = in.u64();
    wait.slices = in.u64();
    if (what > static_cast<uint8_t>(WaitFor::What::call)) return false;
    wait.what = static_cast<WaitFor::What>(what);
    position.waits.push_back(wait);
  }
  return in.ok();
}

std::string RankPosition::who() const {
  if (host.empty()) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (host {}, pid {})", rank, host, pid);
}

std::string RankPosition::standing() const {
  const auto called = [this] {
    std::string text =
        fmt::format("has called {} collective{}", collectivesCalled, collectivesCalled == 1 ? "" : "s");
    if (messagesCalled != 0)
      text += fmt::format(" and {} message{}", messagesCalled, messagesCalled == 1 ? "" : "s");
    return text;
  };
  switch (state) {
    case State::left:
    case State::dead:
      return note;
    case State::silent:
      return "does not answer";
    case State::idle:
      return called() + fmt::format(" and is idle since {}", durationText(quietMs));
    case State::queued:
      return called() + ", but its stream has not come to the next one";
    case State::running:
      break;
  }
  std::string text = "is in " + call.text();
  if (call.kind == CallName::Kind::collective) text += fmt::format(" (its collective {})", collective);
  if (messages > 1) text += fmt::format(" and {} more message(s)", messages - 1);
  text += fmt::format(", not moved for {}", durationText(quietMs));
  for (size_t i = 0; i < waits.size() && i < 3; ++i)
    text += (i == 0 ? ", waits for " : " and for ") + describeWait(waits[i]);
  return text;
}

const char* nameOf(RankPosition::State state) {
  static constexpr const char* kNames[] = {"idle", "queued", "running", "left", "dead", "silent"};
  return kNames[static_cast<size_t>(state)];
}

const char* nameOf(WaitFor::What what) {
  static constexpr const char* kNames[] = {"data", "room", "signal", "call"};
  return kNames[static_cast<size_t>(what)];
}

std::string describeWait(const WaitFor& wait) {
  static constexpr const char* kWhat[] = {"data from", "room at", "a signal from", "the call of"};
  std::string text = wait.peer < 0
                         ? std::string("an earlier step")
                         : fmt::format("{} rank {}", kWhat[static_cast<size_t>(wait.what)], wait.peer);
  if (wait.steps != 0) {
    text += fmt::format(", step {} of {}", wait.step, wait.steps);
  } else if (wait.step != 0) {  // kernels do not tell how many there are
    text += fmt::format(", step {}", wait.step);
  }
  if (wait.slices > 1) {
    text += fmt::format(", slice {} of {}", wait.slice, wait.slices);
  } else if (wait.slices == 0 && wait.slice > 1) {
    text += fmt::format(", slice {}", wait.slice);
  }
  return text;
}

std::string durationText(uint64_t ms) {
  if (ms < 10000) return fmt::format("{:.1f} s", static_cast<double>(ms) / 1000);
  if (ms < 600000) return fmt::format("{} s", ms / 1000);
  return fmt::format("{} min", ms / 60000);
}

}  // namespace tutti
