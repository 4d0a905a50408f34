#include "common/program.h"

#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/job.h"
#include "common/json_report.h"
#include "common/report.h"
#include "common/runtime_select.h"
#include "common/worker.h"

namespace tutti::perf {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

std::string timeOfDay() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32] = {};
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

class ConsolePrinter : public Printer {
 public:
  explicit ConsolePrinter(const Options& options) : options_(options) {}
  void row(const Row& row) override { print(rowText(options_, row, timeOfDay())); }
  void note(const std::string& text) override { print(text + "\n"); }

 private:
  const Options& options_;
};

Outcome requiredBandwidth(Totals& totals) {
  const char* text = std::getenv("NCCL_TESTS_MIN_BW");
  if (!text) return Outcome::ok();
  char* end = nullptr;
  const double gigabytes = std::strtod(text, &end);
  if (end == text || *end || !(gigabytes >= 0))
    return Outcome::misuse("NCCL_TESTS_MIN_BW=" + std::string(text) + ": expected a number of GB/s");
  totals.requiredBusBytes = gigabytes * 1e9;
  return Outcome::ok();
}

/// One run in one process.
class Run {
 public:
  Run(const Options& options, const Collective& collective, Processes& processes)
      : options_(options), processes_(processes), printer_(options), job_(options, collective, processes) {
    record_.program = collective.name();
    record_.startTime = timeOfDay();
  }

  /// True when everything was right.
  Outcome run(bool& passed);

 private:
  Outcome begin();
  void threads();
  void thread(int index);
  Outcome end(bool& passed);

  const Options& options_;
  Processes& processes_;
  ConsolePrinter printer_;
  Job job_;
  Findings findings_;
  RunRecord record_;
};

Outcome Run::begin() {
  if (!options_.jsonFile.empty() && processes_.rank() == 0)
    if (const Outcome outcome = prepareFile(options_.jsonFile); !outcome.isOk()) return outcome;
  if (const Outcome outcome = requiredBandwidth(findings_.totals); !outcome.isOk()) return outcome;
  if (const Outcome outcome = checkNccl(ncclGetVersion(&record_.libraryVersion), "ncclGetVersion");
      !outcome.isOk())
    return outcome;
  if (job_.isRoot()) print(headerText(options_, record_.program, record_.libraryVersion));
  return job_.prepare();
}

Outcome Run::run(bool& passed) {
  if (const Outcome outcome = begin(); !outcome.isOk()) return outcome;
  if (job_.isRoot()) {
    for (const RankInfo& info : job_.rankInfos()) print(rankText(info));
    print(columnsText(options_));
  }
  record_.ranks = job_.rankInfos();
  threads();
  if (job_.watchdog.failed()) {
    record_.errors.push_back(job_.watchdog.message());
    // What is wrong now is what is reported, not that the JSON file could not be written as well.
    if (const Outcome outcome = end(passed); !outcome.isOk())
      std::fprintf(stderr, "%s\n", outcome.message().c_str());
    return Outcome::failure(job_.watchdog.message());
  }
  return end(passed);
}

void Run::thread(int index) {
  const Outcome outcome = job_.prepareThread(index);
  if (!outcome.isOk()) return job_.fail(outcome.message());
  if (!job_.meet(index)) return;
  if (index == 0) {
    job_.watch();
  }
  if (!job_.meet(index)) return;
  Worker(job_, index, findings_, printer_).run();
}

void Run::threads() {
  std::vector<std::thread> others;
  for (int index = 1; index < options_.threads; ++index)
    others.emplace_back([this, index] { thread(index); });
  thread(0);
  for (std::thread& other : others) other.join();
}

Outcome Run::end(bool& passed) {
  const std::string memory = job_.memoryText();  // while everything is still there
  job_.cleanUp();
  int verdict = 0;
  if (job_.isRoot()) {
    record_.rows = findings_.rows;
    record_.totals = findings_.totals;
    record_.endTime = timeOfDay();
    verdict = record_.errors.empty() && record_.totals.passed() ? 1 : 0;
    if (options_.memoryReport) print(memory);
    if (record_.errors.empty()) print(footerText(record_.totals, record_.program));
    if (!options_.jsonFile.empty())
      if (const Outcome outcome = writeFile(options_.jsonFile, jsonText(options_, record_)); !outcome.isOk())
        return outcome;
  }
  if (!record_.errors.empty()) return Outcome::ok();
  const Outcome outcome = processes_.broadcast(&verdict, sizeof verdict, 0);
  passed = verdict == 1;
  return outcome;
}

}  // namespace

int runProgram(const Collective& collective, int argc, char** argv) {
  selectRuntime(argc, argv);
  const ParseResult parsed = parseOptions(argc, argv);
  if (parsed.action == ParseResult::Action::help) {
    print(usage(collective.name()));
    return 0;
  }
  if (parsed.action == ParseResult::Action::version) {
    int nccl = 0;
    ncclGetVersion(&nccl);
    print(std::string(collective.name()) + " " TUTTI_VERSION ", libnccl " + std::to_string(nccl) + "\n");
    return 0;
  }
  if (parsed.action == ParseResult::Action::fail) {
    std::fprintf(stderr, "%s: %s\n%s --help shows all flags\n", collective.name(), parsed.message.c_str(),
                 collective.name());
    return kExitUsage;
  }
  std::unique_ptr<Processes> processes;
  Outcome outcome = Processes::connect(processes);
  bool passed = false;
  if (outcome.isOk()) outcome = Run(parsed.options, collective, *processes).run(passed);
  if (!outcome.isOk()) {
    std::fprintf(stderr, "%s: %s\n", collective.name(), outcome.message().c_str());
    std::fflush(nullptr);
    const int status = outcome.isMisuse() ? kExitUsage : kExitFailed;
    processes->abortOthers(status);
    return status;
  }
  return passed ? 0 : kExitFailed;
}

}  // namespace tutti::perf
