// What a communicator's calls may be run with: the shipped algorithms, and those that it loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/cost_model.h"
#include "algorithms/registry.h"
#include "base/status.h"

namespace tutti {

/// One algorithm, as the selector and the planner see it. Shipped ones are wrapped by
/// CandidateSet::shipped(); for others whoever loads them fills in the fields and adds them to the
/// communicator's set.
struct Candidate {
  std::string name;  // in lower case; unique in its set
  Medium medium = Medium::messages;
  std::vector<Collective> collectives;
  int32_t exactRanks = 0;  // the only number of ranks that it can serve; 0: any that implements() says
  /// Calls outside this range of sizes (of the whole vector) are not for it. Only of algorithms from files.
  size_t minBytes = 0;
  size_t maxBytes = std::numeric_limits<size_t>::max();
  int32_t onlyRoot = -1;  // the only root that it is for; -1: any
  /// Which calls it is right for. Where not for both, it is used only where the user names it: whether a call
  /// is in place is each rank's own, and all ranks must choose alike.
  bool inPlace = true;
  bool outOfPlace = true;
  std::string file;          // that it comes from; empty: shipped
  bool preferred = false;    // goes before predictions where it can run a call (an algorithm from a file)
  bool takesBlocks = false;  // see ScheduleRequest::blocks
  const Algorithm* shipped = nullptr;
  /// Makes a rank's schedule. Null: generate() of registry.h by the name.
  std::function<Result<Schedule>(const ScheduleRequest& request)> generator;
  /// Seconds of a call. Null: predictSeconds() of cost_model.h by the name.
  std::function<double(const CostQuery& query, const CostParameters& costs)> price;

  /// Can be asked about any collective and number of ranks; what connections and buffers allow is another
  /// question.
  bool implements(Collective collective, int32_t ranks) const;
  Result<Schedule> schedule(const ScheduleRequest& request) const;
  bool forAllCalls() const { return inPlace && outOfPlace; }
};

/// An ordered set of candidates; among equal prices the first wins, so all ranks must have the same order.
/// Candidates stay where they are when the set is moved.
class CandidateSet {
 public:
  /// The algorithms of the registry.
  static CandidateSet shipped();
  /// The same, made once for the process: what communicators without algorithms of their own share.
  static std::shared_ptr<const CandidateSet> sharedShipped();

  /// Error (invalidUsage): there is one of that name.
  Status add(Candidate candidate);
  /// Null when there is none of that name (in lower case).
  const Candidate* find(std::string_view name) const;

  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  size_t size() const { return all_.size(); }
  const Candidate& operator[](size_t index) const { return all_[index]; }
  /// The names of those that are not shipped, for AlgorithmFilter::parse().
  std::vector<std::string> namesOfOthers() const;

 private:
  std::vector<Candidate> all_;
};

}  // namespace tutti
