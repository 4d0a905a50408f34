#include "tutti_sim/verify.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "algorithms/registry.h"
#include "algorithms/verify.h"

namespace tutti::simtool {
namespace {

/// Takes tasks until none is left or one fails.
class Prover {
 public:
  explicit Prover(std::vector<VerifyTask> tasks) : tasks_(std::move(tasks)), outcomes_(tasks_.size()) {}

  Status run() {
    const unsigned count = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i < count; ++i) threads.emplace_back([this] { work(false); });
    work(::isatty(STDERR_FILENO) == 1);
    threads.clear();
    return failure_;
  }

  /// One a line, of the most ranks that each algorithm and collective was proved for.
  std::string certificates() const {
    std::string text;
    for (const Algorithm& algorithm : algorithms())
      for (const Collective collective : algorithm.collectives) {
        const Certificate* most = nullptr;
        for (size_t i = 0; i < tasks_.size(); ++i)
          if (tasks_[i].algorithm == &algorithm && tasks_[i].collective == collective &&
              (most == nullptr || outcomes_[i].certificate.ranks > most->ranks))
            most = &outcomes_[i].certificate;
        if (most != nullptr) text += most->toText() + "\n";
      }
    return text;
  }
  int64_t proofs() const {
    int64_t all = 0;
    for (const VerifyOutcome& outcome : outcomes_) all += outcome.proofs;
    return all;
  }

 private:
  void work(bool shows) {
    for (size_t i = next_++; i < tasks_.size() && !failed_; i = next_++) {
      if (shows) std::fprintf(stderr, "\r%zu of %zu ", i, tasks_.size());
      const Status status = statusOf([&] {
        TUTTI_ASSIGN(outcomes_[i], tutti::verify(tasks_[i]));
        return Status::ok();
      });
      if (status.isOk()) continue;
      const std::lock_guard lock(mutex_);
      if (!failed_.exchange(true)) failure_ = status;
    }
    if (shows) std::fprintf(stderr, "\r%-40s\r", "");
  }

  std::vector<VerifyTask> tasks_;
  std::vector<VerifyOutcome> outcomes_;  // each written by the thread that took its task
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
  Prover prover(verifyTasks(options.maxRanks, options.symmetricRanks, options.verifyAlgorithm));
  TUTTI_TRY(prover.run());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return prover.certificates() + fmt::format("{} proofs, 1 .. {} ranks, all roots: all hold. {:.1f} s\n",
                                             prover.proofs(), options.maxRanks, took.count());
}

}  // namespace tutti::simtool
