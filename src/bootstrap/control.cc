#include "bootstrap/control.h"

#include "base/log.h"
#include "base/wire.h"
#include "bootstrap/control_hub.h"

namespace tutti {
namespace {

std::string encodeSettings(const std::map<std::string, std::string>& settings) {
  WireWriter out;
  for (const auto& [name, value] : settings) out.string(name).string(value);
  return std::move(out).bytes();
}

Result<std::map<std::string, std::string>> decodeSettings(std::string_view bytes) {
  WireReader in(bytes);
  std::map<std::string, std::string> settings;
  while (in.ok() && in.left() > 0) {
    std::string name(in.string());
    settings[std::move(name)] = std::string(in.string());
  }
  if (!in.finished()) return remoteError("malformed settings");
  return settings;
}

}  // namespace

Result<std::unique_ptr<Control>> Control::join(const JoinRequest& request, Deadline deadline) {
  if (request.nranks < 1 || request.rank < 0 || request.rank >= request.nranks)
    return invalidArgument("rank {} of {} ranks", request.rank, request.nranks);
  if (!request.faults) return internalError("Control::join needs a FaultState");
  TUTTI_ASSIGN(const UniqueId id, UniqueId::decode(request.id));
  auto hub = std::make_shared<Hub>(request);
  std::unique_ptr<Control> control(new Control(hub));  // leaves when anything below fails
  Status status = hub->start(id, deadline);
  // Also the proof that every rank is connected to rank 0.
  if (status.isOk()) status = control->agree(request.settings, deadline);
  status = hub->rootCause(std::move(status));
  hub->endRendezvous(id.id, status);
  TUTTI_TRY(std::move(status));
  logInfo(Subsystem::bootstrap, "rank {} of {}: all ranks are connected, session {:016x}", request.rank,
          request.nranks, control->session());
  return control;
}

Control::~Control() { leave(Deadline::after(std::chrono::milliseconds(300))); }

int Control::rank() const { return hub_->rank_; }
int Control::size() const { return hub_->size_; }
const Secret& Control::secret() const { return hub_->secret_; }
uint64_t Control::session() const { return hub_->session_; }
std::string Control::describe(int peer) const { return hub_->describe(peer); }

Result<std::vector<std::string>> Control::allGather(std::string_view mine, Deadline deadline) {
  return hub_->allGather(mine, deadline);
}
Status Control::barrier(Deadline deadline) { return hub_->allGather({}, deadline).status(); }
Status Control::send(int peer, uint64_t tag, std::string_view bytes, Deadline deadline) {
  return hub_->send(peer, tag, bytes, deadline);
}
Result<std::string> Control::receive(int peer, uint64_t tag, Deadline deadline) {
  return hub_->receive(peer, tag, deadline);
}
void Control::handle(uint64_t tag, std::function<void(int peer, std::string_view bytes)> handler) {
  hub_->handle(tag, std::move(handler));
}
size_t Control::queuedBytes(int peer) const { return hub_->queuedBytes(peer); }
ncclUniqueId Control::deriveId(int leader, std::string_view purpose) const {
  return hub_->deriveId(leader, purpose);
}
std::vector<Kin> Control::kin(const std::vector<int>& ranks) const { return hub_->kin(ranks); }
void Control::announceFault(const Status& why) { hub_->announceFault(why); }
Status Control::note(int peer, std::string_view bytes) { return hub_->note(peer, bytes); }
void Control::whereabouts(int peer, std::string& host, int64_t& pid) const {
  hub_->whereabouts(peer, host, pid);
}
std::string Control::gone(int peer) const { return hub_->gone(peer); }
void Control::leave(Deadline deadline) { hub_->leave(deadline); }

Status Control::agree(const std::map<std::string, std::string>& settings, Deadline deadline) {
  TUTTI_ASSIGN(const std::vector<std::string> all, hub_->allGather(encodeSettings(settings), deadline));
  // Everyone compares with rank 0, so everyone finds the same difference.
  TUTTI_ASSIGN(const auto first, decodeSettings(all[0]));
  const auto valueIn = [](const auto& map, const std::string& name) {
    const auto found = map.find(name);
    return found == map.end() ? std::string("not set") : "\"" + found->second + "\"";
  };
  for (int other = 1; other < hub_->size_; ++other) {
    if (all[static_cast<size_t>(other)] == all[0]) continue;
    TUTTI_ASSIGN(const auto theirs, decodeSettings(all[static_cast<size_t>(other)]));
    auto names = first;
    names.insert(theirs.begin(), theirs.end());
    for (const auto& [name, unused] : names) {
      if (valueIn(first, name) == valueIn(theirs, name)) continue;
      return invalidUsage("{} differs between ranks: {} has {}, {} has {}", name, describe(0),
                          valueIn(first, name), describe(other), valueIn(theirs, name));
    }
  }
  return Status::ok();
}

}  // namespace tutti
