#include "tutti_sim/verify.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "algorithms/checker.h"
#include "algorithms/registry.h"

namespace tutti::simtool {
namespace {

constexpr Collective kCollectives[] = {
    Collective::allReduce, Collective::allGather, Collective::reduceScatter, Collective::broadcast,
    Collective::reduce,    Collective::allToAll,  Collective::gather,        Collective::scatter};

/// One proof.
struct Case {
  const Algorithm* algorithm = nullptr;
  Collective collective = Collective::allReduce;
  int32_t ranks = 1;
  int32_t root = 0;
};

std::vector<Case> casesOf(const Options& options) {
  std::vector<Case> cases;
  for (int32_t ranks = options.maxRanks; ranks >= 1; --ranks)  // long ones first: both cores end together
    for (const Algorithm& algorithm : algorithms()) {
      if (!options.verifyAlgorithm.empty() && algorithm.name != options.verifyAlgorithm) continue;
      for (const Collective collective : kCollectives)
        if (algorithm.implements(collective, ranks))
          for (int32_t root = 0; root < (hasRoot(collective) ? ranks : 1); ++root)
            cases.push_back({&algorithm, collective, ranks, root});
    }
  return cases;
}

Result<Certificate> proveCase(const Case& one) {
  ScheduleRequest request;
  request.collective = one.collective;
  request.ranks = one.ranks;
  request.root = one.root;
  TUTTI_ASSIGN(const std::vector<Schedule> schedules, generateAll(one.algorithm->name, request));
  return prove(schedules).withContext("{} {}, {} ranks, root {}", one.algorithm->name, name(one.collective),
                                      one.ranks, one.root);
}

/// Takes cases until none is left or one fails.
class Prover {
 public:
  explicit Prover(std::vector<Case> cases) : cases_(std::move(cases)), certificates_(cases_.size()) {}

  Status run() {
    const unsigned count = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i < count; ++i) threads.emplace_back([this] { work(false); });
    work(::isatty(STDERR_FILENO) == 1);
    threads.clear();
    return failure_;
  }

  /// For the most ranks that each algorithm and collective was proved for, root 0.
  std::string certificates() const {
    std::string text;
    std::vector<std::pair<const Algorithm*, Collective>> seen;
    for (size_t i = 0; i < cases_.size(); ++i) {
      const std::pair what{cases_[i].algorithm, cases_[i].collective};
      if (std::ranges::find(seen, what) != seen.end() || !certificates_[i]) continue;
      seen.push_back(what);
      text += certificates_[i]->toText() + "\n";
    }
    return text;
  }
  size_t count() const { return cases_.size(); }

 private:
  void work(bool shows) {
    for (size_t i = next_++; i < cases_.size() && !failed_; i = next_++) {
      if (shows && i % 64 < 2) std::fprintf(stderr, "\r%zu of %zu proofs ", i, cases_.size());
      auto proof = statusOrCertificate(cases_[i]);
      if (proof.isOk()) {
        certificates_[i] = std::move(proof).value();
        continue;
      }
      const std::lock_guard lock(mutex_);
      if (!failed_.exchange(true)) failure_ = proof.status();
    }
    if (shows) std::fprintf(stderr, "\r%-40s\r", "");
  }

  static Result<Certificate> statusOrCertificate(const Case& one) {
    std::optional<Result<Certificate>> proof;
    const Status status = statusOf([&] {
      proof.emplace(proveCase(one));
      return Status::ok();
    });
    if (!status.isOk()) return status;
    return std::move(*proof);
  }

  std::vector<Case> cases_;
  std::vector<std::optional<Certificate>> certificates_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  Status failure_;
};

}  // namespace

Result<std::string> verify(const Options& options) {
  if (!options.verifyAlgorithm.empty() && findAlgorithm(options.verifyAlgorithm) == nullptr)
    return invalidUsage("--verify: \"{}\" is no algorithm", options.verifyAlgorithm);
  const auto begin = std::chrono::steady_clock::now();
  Prover prover(casesOf(options));
  TUTTI_TRY(prover.run());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return prover.certificates() + fmt::format("{} proofs, 1 .. {} ranks, all roots: all hold. {:.1f} s\n",
                                             prover.count(), options.maxRanks, took.count());
}

}  // namespace tutti::simtool
