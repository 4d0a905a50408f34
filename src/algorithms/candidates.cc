#include "algorithms/candidates.h"

#include <algorithm>
#include <utility>

namespace tutti {

bool Candidate::implements(Collective collective, int32_t ranks) const {
  if (shipped != nullptr) return shipped->implements(collective, ranks);
  if (exactRanks != 0 && exactRanks != ranks) return false;
  return std::ranges::find(collectives, collective) != collectives.end();
}

Result<Schedule> Candidate::schedule(const ScheduleRequest& request) const {
  return generator ? generator(request) : generate(name, request);
}

CandidateSet CandidateSet::shipped() {
  CandidateSet set;
  for (const Algorithm& algorithm : algorithms()) {
    Candidate& one = set.all_.emplace_back();
    one.name = algorithm.name;
    one.medium = algorithm.medium;
    one.collectives = algorithm.collectives;
    one.takesBlocks = algorithm.takesBlocks;
    one.shipped = &algorithm;
  }
  return set;
}

std::shared_ptr<const CandidateSet> CandidateSet::sharedShipped() {
  // Never destroyed, as choices point into it.
  static const auto& kShipped =
      *new std::shared_ptr<const CandidateSet>(std::make_shared<const CandidateSet>(shipped()));
  return kShipped;
}

Status CandidateSet::add(Candidate candidate) {
  if (find(candidate.name) != nullptr)
    return invalidUsage("there is an algorithm \"{}\" already", candidate.name);
  all_.push_back(std::move(candidate));
  return Status::ok();
}

const Candidate* CandidateSet::find(std::string_view name) const {
  const auto found = std::ranges::find(all_, name, &Candidate::name);
  return found == all_.end() ? nullptr : &*found;
}

std::vector<std::string> CandidateSet::namesOfOthers() const {
  std::vector<std::string> names;
  for (const Candidate& one : all_)
    if (one.shipped == nullptr) names.push_back(one.name);
  return names;
}

}  // namespace tutti
