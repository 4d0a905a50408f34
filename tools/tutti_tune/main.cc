// tutti-tune: measures this system and writes the file that TUTTI_TUNING_FILE names.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>

#include "base/output_file.h"
#include "common/processes.h"
#include "common/runtime_select.h"
#include "tutti_tune/entries.h"
#include "tutti_tune/fit.h"
#include "tutti_tune/options.h"
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

Result<Selector> selectorWith(const TuningFile& file) {
  SelectorSettings settings;
  settings.tuning = std::make_shared<const TuningFile>(file);
  return Selector::create(CandidateSet::sharedShipped(), std::move(settings));
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

/// Parameters that explain what was measured; those of a medium that was not measured stay out.
TuningFile fitted(const Survey& survey, std::string* text) {
  const CandidateSet candidates = CandidateSet::shipped();
  const MachineCosts before{sharedMemoryCosts(), tcpCosts()};
  MachineCosts costs = before;
  TuningFile file;
  for (const CostMedium medium : kCostMedia) {
    const Fit found = fit(survey.points, candidates, costs, medium);
    if (found.used == 0) continue;
    costs = found.costs;
    *text += fitText(found, medium, before);
    const CostParameters& values = medium == CostMedium::shared ? costs.shared : costs.network;
    for (const CostParameterName& one : costParameterNames())
      if (values.*one.value > 0) file.set(medium, one, std::stod(fmt::format("{:.4g}", values.*one.value)));
  }
  return file;
}

Outcome writeTuning(const Options& options, const Survey& survey) {
  std::string text;
  const auto shipped = selectorWith({});
  if (!shipped.isOk()) return toOutcome(shipped.status());
  Balance balance;
  choicesText(survey.points, *shipped, &balance);
  std::string report = "# As shipped: " + balanceText(balance).substr(2);
  TuningFile file = fitted(survey, &report);
  const auto model = selectorWith(file);
  if (!model.isOk()) return toOutcome(model.status());
  choicesText(survey.points, *model, &balance);
  report += "# By the fitted parameters: " + balanceText(balance).substr(2);
  for (const TuningEntry& entry : entriesFor(survey.points, *model, options.noise)) file.add(entry);
  const auto final = selectorWith(file);
  if (!final.isOk()) return toOutcome(final.status());
  std::fputs(choicesText(survey.points, *final, &balance).c_str(), stdout);
  report += fmt::format("# With {} entries: ", file.entries().size()) + balanceText(balance).substr(2);
  std::fputs(report.c_str(), stdout);
  const Status written = replaceFile(options.output, headText(options, survey) + file.text());
  if (!written.isOk()) return toOutcome(written);
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

Outcome report(const Options& options, const Survey& survey, bool* passed) {
  if (survey.left > 0)
    std::printf("# The time was over before %zu calls were measured: --budget gives more\n", survey.left);
  if (!options.csv.empty())
    if (const Status status = replaceFile(options.csv, csvText(survey.points)); !status.isOk())
      return toOutcome(status);
  if (!options.compare) return writeTuning(options, survey);
  Balance balance;
  std::fputs(comparisonText(survey.points, &balance).c_str(), stdout);
  std::fputs(balanceText(balance).c_str(), stdout);
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

Outcome run(const Options& options, perf::Processes& processes, bool* passed) {
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
