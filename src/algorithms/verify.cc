#include "algorithms/verify.h"

#include <algorithm>
#include <set>
#include <utility>

#include "algorithms/symmetry.h"

namespace tutti {
namespace {

using HostSizes = std::vector<int32_t>;

/// Hosts for the ranks: one alone and the rest, halves, and fours.
std::set<HostSizes> hostShapes(int32_t ranks) {
  std::set<HostSizes> shapes;
  if (ranks == 1) return {{1}};
  shapes.insert({1, ranks - 1});
  shapes.insert({(ranks + 1) / 2, ranks / 2});
  HostSizes fours(static_cast<size_t>(ranks / 4), 4);
  if (ranks % 4 != 0) fours.push_back(ranks % 4);
  shapes.insert(std::move(fours));
  return shapes;
}

Status proveRequest(const VerifyTask& task, const ScheduleRequest& request, VerifyOutcome* outcome) {
  TUTTI_ASSIGN(const ScheduleSet set, generateAll(task.algorithm->name, request));
  TUTTI_ASSIGN(outcome->certificate, prove(set));
  ++outcome->proofs;
  return Status::ok();
}

Status proveOverHosts(const VerifyTask& task, ScheduleRequest request, VerifyOutcome* outcome) {
  for (const HostSizes& sizes : hostShapes(task.ranks)) {
    request.hosts = consecutiveHosts(sizes);
    for (const bool mapped : {false, true}) {
      // Pairs that do not work in others' buffers are the same in both ways.
      if (mapped && !task.algorithm->inter.empty() && task.algorithm->intra != "direct") continue;
      request.mapped = mapped;
      TUTTI_TRY(proveRequest(task, request, outcome).withContext("on {} hosts", sizes.size()));
    }
  }
  return Status::ok();
}

Result<VerifyOutcome> verifySymmetric(const VerifyTask& task, Symmetry symmetry) {
  ScheduleRequest request;
  request.collective = task.collective;
  request.ranks = task.ranks;
  TUTTI_ASSIGN(const Schedule schedule, generate(task.algorithm->name, request));
  VerifyOutcome outcome;
  TUTTI_ASSIGN(outcome.certificate, proveSymmetric(schedule, symmetry));
  outcome.proofs = 1;
  return outcome;
}

/// A guess at how long a task takes, to begin with the longest.
double weight(const VerifyTask& task) {
  if (task.symmetric) return task.ranks;
  const double p = task.ranks;
  const double roots = hasRoot(task.collective) ? p : 1;
  const bool shared = task.algorithm->medium != Medium::messages;
  return roots * p * p * (shared ? 4 : 1);
}

}  // namespace

std::vector<VerifyTask> verifyTasks(int32_t maxRanks, int32_t symmetricRanks, std::string_view algorithm) {
  std::vector<VerifyTask> tasks;
  const Algorithm* only = algorithm.empty() ? nullptr : findAlgorithm(algorithm);
  for (const Algorithm& candidate : algorithms()) {
    if (!algorithm.empty() && &candidate != only) continue;
    for (const Collective collective : candidate.collectives) {
      for (int32_t ranks = 1; ranks <= maxRanks; ++ranks)
        if (candidate.implements(collective, ranks)) tasks.push_back({&candidate, collective, ranks, false});
      if (symmetricRanks > maxRanks && candidate.implements(collective, symmetricRanks) &&
          candidate.symmetryOf(collective, symmetricRanks) != Symmetry::none)
        tasks.push_back({&candidate, collective, symmetricRanks, true});
    }
  }
  std::ranges::stable_sort(tasks, std::greater<>(), weight);
  return tasks;
}

Result<VerifyOutcome> verify(const VerifyTask& task) {
  const Symmetry symmetry = task.algorithm->symmetryOf(task.collective, task.ranks);
  if (task.symmetric) return verifySymmetric(task, symmetry);
  VerifyOutcome outcome;
  ScheduleRequest request;
  request.collective = task.collective;
  request.ranks = task.ranks;
  const bool overHosts = task.algorithm->medium == Medium::hosts;
  // Pairs are made of proved algorithms, and their roots differ by the host: first, middle and last will do.
  const std::set<int32_t> some = {0, task.ranks / 2, task.ranks - 1};
  for (request.root = 0; request.root < (hasRoot(task.collective) ? task.ranks : 1); ++request.root) {
    if (overHosts && !some.contains(request.root)) continue;
    TUTTI_TRY(overHosts ? proveOverHosts(task, request, &outcome) : proveRequest(task, request, &outcome));
  }
  if (symmetry == Symmetry::none || task.ranks == 1) return outcome;
  request.root = 0;
  TUTTI_ASSIGN(const ScheduleSet set, generateAll(task.algorithm->name, request));
  TUTTI_TRY(checkSymmetry(set, symmetry));
  return outcome;
}

}  // namespace tutti
