#include "core/derive.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/params.h"
#include "base/wire.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/unique_id.h"
#include "core/communicator.h"
#include "core/config.h"
#include "core/group.h"
#include "core/init.h"

namespace tutti {
namespace {

constexpr int kShrinkDefault = 0;
constexpr int kShrinkAbort = 1;

Deadline initDeadline() { return Deadline::after(std::chrono::seconds(params().initTimeout())); }

/// The parent's settings, and what the configuration says otherwise.
Result<CommunicatorSetup> childSetup(const Communicator& parent, const ncclConfig_t* config) {
  CommunicatorSetup setup = parent.setup();
  TUTTI_TRY(applyConfig(config, setup));
  return setup;
}

struct SplitChoice {
  int color;
  int key;
  int rank;
};

Result<std::vector<SplitChoice>> exchangeChoices(Communicator& parent, int color, int key) {
  TUTTI_ASSIGN(const auto all, parent.exchange(WireWriter().i32(color).i32(key).bytes(), initDeadline()));
  std::vector<SplitChoice> choices;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    WireReader in(all[rank]);
    SplitChoice choice{};
    choice.color = in.i32();
    choice.key = in.i32();
    choice.rank = static_cast<int>(rank);
    if (!in.finished()) {
      return invalidUsage("rank {} is not in ncclCommSplit, but in another call on this communicator", rank);
    }
    choices.push_back(choice);
  }
  return choices;
}

/// Exchanges colors and keys, and gives the child its place.
Status prepareSplit(Communicator& parent, Communicator* child, int color, int key) {
  TUTTI_ASSIGN(std::vector<SplitChoice> group, exchangeChoices(parent, color, key));
  if (child == nullptr) return Status::ok();
  std::erase_if(group, [color](const SplitChoice& one) { return one.color != color; });
  std::sort(group.begin(), group.end(), [](const SplitChoice& a, const SplitChoice& b) {
    return std::tie(a.key, a.rank) < std::tie(b.key, b.rank);
  });
  const auto mine = std::find_if(group.begin(), group.end(),
                                 [&](const SplitChoice& one) { return one.rank == parent.rank(); });
  child->setRank(static_cast<int>(mine - group.begin()), static_cast<int>(group.size()));
  std::vector<int> ranks;
  for (const SplitChoice& one : group) ranks.push_back(one.rank);
  child->setId(parent.deriveId(ranks.front(), fmt::format("split {}", color)), parent.kin(ranks));
  return Status::ok();
}

Status checkExcluded(const Communicator& parent, const int* excluded, int count) {
  if (excluded == nullptr) return invalidArgument("excludeRanksList is null");
  if (count < 1 || count >= parent.ranks()) {
    return invalidArgument("excludeRanksCount is {}, but 1 to {} of the {} ranks can be excluded", count,
                           parent.ranks() - 1, parent.ranks());
  }
  std::set<int> seen;
  for (int i = 0; i < count; ++i) {
    if (excluded[i] < 0 || excluded[i] >= parent.ranks()) {
      return invalidArgument("excludeRanksList[{}] is {}, which is no rank of this communicator (0..{})", i,
                             excluded[i], parent.ranks() - 1);
    }
    if (!seen.insert(excluded[i]).second)
      return invalidArgument("excludeRanksList names rank {} twice", excluded[i]);
  }
  if (seen.count(parent.rank()) != 0) {
    return invalidUsage("rank {} is in excludeRanksList: only the ranks that stay call ncclCommShrink",
                        parent.rank());
  }
  return Status::ok();
}

/// What one rank contributes to the exchange of ncclCommGrow.
Result<ncclUniqueId> exchangeGrowId(Communicator& parent, const ncclUniqueId* id, int ranks) {
  WireWriter mine;
  mine.i32(ranks).string(id != nullptr ? std::string_view(id->internal, sizeof id->internal) : "");
  TUTTI_ASSIGN(const auto all, parent.exchange(mine.bytes(), initDeadline()));
  ncclUniqueId common{};
  int giver = -1;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    WireReader in(all[rank]);
    const int theirRanks = in.i32();
    const std::string given(in.string());
    if (!in.finished() || (!given.empty() && given.size() != sizeof common.internal))
      return invalidUsage("rank {} is not in ncclCommGrow, but in another call on this communicator", rank);
    if (theirRanks != ranks)
      return invalidArgument("nRanks is {} on rank {}, but {} on rank {}", ranks, parent.rank(), theirRanks,
                             rank);
    if (given.empty()) continue;
    if (giver >= 0 && given != std::string_view(common.internal, sizeof common.internal))
      return invalidArgument("ranks {} and {} give different unique ids", giver, rank);
    std::copy(given.begin(), given.end(), common.internal);
    giver = static_cast<int>(rank);
  }
  if (giver < 0) return invalidArgument("no rank of the communicator gave a unique id (ncclCommGetUniqueId)");
  return common;
}

}  // namespace

Status splitComm(ncclComm_t comm, int color, int key, ncclComm_t* newComm, const ncclConfig_t* config) {
  if (newComm == nullptr) return invalidArgument("newcomm is null");
  *newComm = nullptr;
  TUTTI_ASSIGN(CommUse resolved, resolveHandle(comm));
  TUTTI_TRY(checkNotFinalized(resolved));
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
    return invalidArgument("color is {}, but must be 0 or more, or NCCL_SPLIT_NOCOLOR (-1)", color);
  TUTTI_ASSIGN(const CommunicatorSetup setup, childSetup(*resolved, config));
  const auto parent = std::make_shared<CommUse>(std::move(resolved));
  Job job;
  if (color == NCCL_SPLIT_NOCOLOR) {
    job.run = [parent, key] { return prepareSplit(**parent, nullptr, NCCL_SPLIT_NOCOLOR, key); };
    job.cancel = [](const Status&) {};  // the exchange ends when the parent fails, or at its deadline
  } else {
    const auto child = beginHandle(setup);
    *newComm = child->handle();
    (*parent)->adopt(**child, true);
    job = makeJob(child,
                  [parent, child, color, key] { return prepareSplit(**parent, child->get(), color, key); });
  }
  job.blocking = comm->blocking;
  job.subject = parent;
  job.order = comm;
  return Group::ofThisThread().submitJob(std::move(job));
}

Status shrinkComm(ncclComm_t comm, const int* excluded, int excludedCount, ncclComm_t* newComm,
                  const ncclConfig_t* config, int flags) {
  if (newComm == nullptr) return invalidArgument("newcomm is null");
  *newComm = nullptr;
  TUTTI_ASSIGN(CommUse resolved, resolveHandle(comm));
  TUTTI_TRY(checkNotFinalized(resolved));
  if (flags != kShrinkDefault && flags != kShrinkAbort)
    return invalidArgument("shrinkFlags is {:#x}: neither NCCL_SHRINK_DEFAULT nor NCCL_SHRINK_ABORT", flags);
  TUTTI_TRY(checkExcluded(*resolved, excluded, excludedCount));
  TUTTI_ASSIGN(CommunicatorSetup setup, childSetup(*resolved, config));
  const std::set<int> out(excluded, excluded + excludedCount);
  std::vector<int> stay;
  std::string purpose = "shrink";
  for (int rank = 0; rank < resolved->ranks(); ++rank) {
    if (out.count(rank) != 0) continue;
    if (rank == resolved->rank()) setup.rank = static_cast<int>(stay.size());
    stay.push_back(rank);
    purpose += " " + std::to_string(rank);
  }
  setup.ranks = static_cast<int>(stay.size());
  setup.id = resolved->deriveId(stay.front(), purpose);
  setup.kin = resolved->kin(stay);
  const auto parent = std::make_shared<CommUse>(std::move(resolved));
  const auto child = beginHandle(setup);
  *newComm = child->handle();
  (*parent)->adopt(**child, false);
  Job job = makeJob(child, [parent, flags] {
    return flags == kShrinkAbort ? (*parent)->revoke("ended its operations to shrink the communicator")
                                 : Status::ok();
  });
  job.blocking = comm->blocking;
  job.subject = parent;
  job.order = comm;
  return Group::ofThisThread().submitJob(std::move(job));
}

Result<ncclUniqueId> growId(ncclComm_t comm) {
  TUTTI_ASSIGN(const CommUse use, resolveForWork(comm));
  TUTTI_TRY(use->error());
  return createOwnUniqueId();
}

Status growComm(ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank, ncclComm_t* newComm,
                const ncclConfig_t* config) {
  if (newComm == nullptr) return invalidArgument("newcomm is null");
  *newComm = nullptr;
  if (comm == nullptr) {
    if (id == nullptr) return invalidArgument("a new rank (comm is null) needs the unique id");
    return initRank(newComm, ranks, *id, rank, config);
  }
  TUTTI_ASSIGN(CommUse resolved, resolveForWork(comm));
  TUTTI_TRY(resolved->error());
  if (ranks <= resolved->ranks())
    return invalidArgument("nRanks is {}, but the communicator has {} ranks already", ranks,
                           resolved->ranks());
  if (rank != -1 && rank != resolved->rank()) {
    return invalidArgument("rank is {}, but rank {} keeps its number (give that, or -1)", rank,
                           resolved->rank());
  }
  TUTTI_ASSIGN(CommunicatorSetup setup, childSetup(*resolved, config));
  setup.ranks = ranks;
  const auto parent = std::make_shared<CommUse>(std::move(resolved));
  const auto child = beginHandle(setup);
  *newComm = child->handle();
  (*parent)->adopt(**child, true);
  const std::shared_ptr<const ncclUniqueId> given =
      id != nullptr ? std::make_shared<ncclUniqueId>(*id) : nullptr;
  Job job = makeJob(child, [parent, child, given, ranks]() -> Status {
    const auto common = exchangeGrowId(**parent, given.get(), ranks);
    if (common.isOk()) {
      (*child)->setId(*common);
    } else if (given) {  // the new ranks know nothing of this communicator and its end
      declineToMeet(*given, (*parent)->rank(), ranks, common.status());
    }
    return common.status();
  });
  job.blocking = comm->blocking;
  job.subject = parent;
  job.order = comm;
  return Group::ofThisThread().submitJob(std::move(job));
}

}  // namespace tutti
