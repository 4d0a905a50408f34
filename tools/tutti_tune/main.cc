// tutti-tune: measures this system and writes the file that TUTTI_TUNING_FILE names.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>

#include "base/output_file.h"
#include "common/processes.h"
#include "common/runtime_select.h"
#include "tutti_tune/options.h"
#include "tutti_tune/proposal.h"
#include "tutti_tune/survey.h"
#include "tutti_tune/tables.h"
#include "tutti_tune/team.h"

namespace {

using namespace tutti;
using namespace tutti::tune;
using perf::Outcome;

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

Outcome toOutcome(const Status& status) {
  return status.isOk() ? Outcome::ok() : Outcome::failure(status.message());
}

std::string headText(const Options& options, const Survey& survey) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char date[32] = {};
  std::strftime(date, sizeof date, "%Y-%m-%d %H:%M", &local);
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  std::string ranks;
  for (const int one : options.ranks) ranks += (ranks.empty() ? "" : ",") + std::to_string(one);
  return fmt::format(
      "# tutti-tune {}, {}, on {}: ranks {}, {} to {} bytes, {} samples in {:.0f} s\n"
      "# function,minbytes,maxbytes,algorithm,protocol,channels,hosts,ranks[,operations[,mapped]]\n",
      TUTTI_VERSION, date, host, ranks, options.minBytes, options.maxBytes, survey.sampleCount,
      survey.seconds);
}

Outcome writeTuning(const Options& options, const Survey& survey) {
  const auto proposal = propose(survey.points, options.noise);
  if (!proposal.isOk()) return toOutcome(proposal.status());
  const auto selector = selectorWith(proposal->file);
  if (!selector.isOk()) return toOutcome(selector.status());
  std::fputs(choicesText(survey.points, *selector).c_str(), stdout);
  std::fputs(proposal->findings.c_str(), stdout);
  const std::string judged =
      fmt::format("# chosen/best, geometric mean: {:.3f} as shipped, {:.3f} with this file{}\n",
                  proposal->shipped, proposal->proposed, proposal->helps ? "" : ", which does not help");
  const std::string text = headText(options, survey) + judged + proposal->file.text();
  if (const Status written = replaceFile(options.output, text); !written.isOk()) {
    std::printf("# The file could not be written. This is what belongs into it:\n%s", text.c_str());
    return toOutcome(written);
  }
  std::printf("# %s written: TUTTI_TUNING_FILE=%s makes programs use it\n", options.output.c_str(),
              options.output.c_str());
  return Outcome::ok();
}

/// Measurements beside others' work are worth little: says so.
void warnOfLoad() {
  double load = 0;
  if (::getloadavg(&load, 1) != 1) return;
  const auto processors = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
  if (load > 0.5 * processors)
    std::fprintf(stderr,
                 "tutti-tune: the load of this machine is %.1f on %.0f processors: others' work disturbs the "
                 "measurement "
                 "(--quantile 10 helps a little)\n",
                 load, processors);
}

std::string settledText(const Options& options, const Survey& survey) {
  if (survey.unsettled > 0)
    return fmt::format(
        "# For {} of {} calls the best or the chosen way is known to no better than 10 %: --budget gives "
        "more "
        "samples\n",
        survey.unsettled, survey.points.size());
  const double left = std::max(0.0, options.budgetSeconds - survey.seconds);
  return fmt::format(
      "# All is settled (the best and the chosen ways to 10 %) after {:.1f} s; {:.1f} s are left\n",
      survey.seconds, left);
}

Outcome report(const Options& options, const Survey& survey, bool* passed) {
  if (survey.left > 0)
    std::printf("# The time was over before %zu calls were measured: --budget gives more\n", survey.left);
  std::fputs(settledText(options, survey).c_str(), stdout);
  const Outcome tuned = options.compare ? Outcome::ok() : writeTuning(options, survey);
  if (!options.csv.empty())
    if (const Status status = replaceFile(options.csv, csvText(survey.points)); !status.isOk())
      return toOutcome(status);
  if (!options.compare) return tuned;
  Balance balance;
  std::fputs(comparisonText(survey.points, &balance).c_str(), stdout);
  *passed = options.limit <= 0 || balance.mean <= options.limit;
  if (!*passed) std::fprintf(stderr, "tutti-tune: the geometric mean is above %g\n", options.limit);
  return Outcome::ok();
}

/// Threads for each process, or why there are too few ranks.
Outcome threadsOf(const Options& options, int processes, int* threads) {
  const int needed = (options.mostRanks() + processes - 1) / processes;
  *threads = options.threads > 0 ? options.threads : needed;
  if (*threads * processes >= options.mostRanks()) return Outcome::ok();
  return Outcome::misuse(fmt::format("--ranks {}: {} process(es) of {} thread(s) are {} ranks",
                                     options.mostRanks(), processes, *threads, processes * *threads));
}

/// What can be known before it is measured for: that a file cannot be made there.
Outcome checkTarget(const char* option, const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0)
    return S_ISDIR(info.st_mode) ? Outcome::misuse(fmt::format("{} {}: is a folder", option, path))
                                 : Outcome::ok();
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (!path.empty() && ::access(folder.c_str(), W_OK | X_OK) == 0) return Outcome::ok();
  return Outcome::misuse(fmt::format("{} {}: no file can be made there: {}", option, path,
                                     path.empty() ? "it has no name" : std::strerror(errno)));
}

Outcome run(const Options& options, perf::Processes& processes, bool* passed) {
  if (processes.rank() == 0 && !options.compare)
    if (const Outcome outcome = checkTarget("--output", options.output); !outcome.isOk()) return outcome;
  if (processes.rank() == 0 && !options.csv.empty())
    if (const Outcome outcome = checkTarget("--csv", options.csv); !outcome.isOk()) return outcome;
  int threads = 1;
  if (const Outcome outcome = threadsOf(options, processes.size(), &threads); !outcome.isOk()) return outcome;
  const size_t most = options.maxBytes + sizeof(float) * static_cast<size_t>(options.mostRanks());
  if (processes.rank() == 0) warnOfLoad();
  Team team(options.ranks, threads, most, processes);
  return team.run([&](Team& conducted) {
    Survey result;
    if (const Outcome outcome = survey(conducted, options, &result); !outcome.isOk()) return outcome;
    return report(options, result, passed);
  });
}

}  // namespace

int main(int argc, char** argv) {
  selectRuntime(argc, argv);
  std::unique_ptr<perf::Processes> processes;
  Outcome outcome = perf::Processes::connect(processes);
  Options options;
  bool passed = true;
  if (outcome.isOk()) {
    const int status = parseOptions(argc, argv, processes->rank() == 0, &options);
    if (status >= 0) return status;
    outcome = run(options, *processes, &passed);
  }
  if (outcome.isOk()) return passed ? 0 : kExitFailed;
  std::fprintf(stderr, "tutti-tune: %s\n", outcome.message().c_str());
  const int status = outcome.isMisuse() ? kExitUsage : kExitFailed;
  processes->abortOthers(status);
  return status;
}
