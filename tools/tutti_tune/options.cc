#include "tutti_tune/options.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <sstream>

#include <CLI/CLI.hpp>

#include "algorithms/algorithm_filter.h"
#include "base/text.h"
#include "common/size.h"

namespace tutti::tune {
namespace {

constexpr int kMostRanks = 4096;

/// "60", "60s", "5m".
std::string readSeconds(const std::string& text, double* seconds) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, text.data() + text.size());
  const double factor = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : 0;
  if (error != std::errc() || factor == 0 || !(value > 0) || value * factor > 86400)
    return "expected a time such as 60s or 5m, at most a day";
  *seconds = value * factor;
  return "";
}

std::string readSize(const std::string& text, size_t* bytes) {
  const auto value = perf::parseSize(text);
  if (!value || *value == 0 || *value > (uint64_t{1} << 40)) return "expected a size such as 8, 64K or 16M";
  *bytes = *value;
  return "";
}

std::string readCollectives(const std::string& text, std::vector<Collective>* list) {
  list->clear();
  for (const std::string_view word : splitAt(text, ',')) {
    const auto collective = findFunction(word);
    if (!collective) return "\"" + std::string(word) + "\" is not known; known are " + knownFunctions();
    if (std::ranges::find(*list, *collective) == list->end()) list->push_back(*collective);
  }
  return "";
}

std::string readRanks(const std::string& text, std::vector<int>* list) {
  list->clear();
  for (const std::string_view word : splitAt(text, ',')) {
    int ranks = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), ranks);
    if (error != std::errc() || end != word.data() + word.size() || ranks < 2 || ranks > kMostRanks)
      return "expected numbers of ranks from 2 to " + std::to_string(kMostRanks) + ", such as 2,3,4,8";
    if (std::ranges::find(*list, ranks) == list->end()) list->push_back(ranks);
  }
  return "";
}

}  // namespace

std::vector<size_t> Options::sizes() const {
  std::vector<size_t> all;
  for (size_t bytes = minBytes; bytes <= maxBytes; bytes *= factor) all.push_back(bytes);
  return all;
}

int Options::mostRanks() const { return *std::ranges::max_element(ranks); }

int parseOptions(int argc, char** argv, bool speaks, Options* options) {
  readCollectives(knownFunctions(), &options->collectives);
  CLI::App app(
      "Measures collectives on this system, with every algorithm that can run them, and writes a tuning "
      "file: cost\n"
      "parameters, and choices where measurements contradict predictions. TUTTI_TUNING_FILE=FILE then makes "
      "programs "
      "use\n"
      "it. Ranks are threads of this process; under mpirun, of all its processes (for several hosts).",
      "tutti-tune");
  app.set_version_flag("--version", "tutti-tune " TUTTI_VERSION);
  std::string ranks = "2,3,4,8", collectives, least = "8", most = "16M", budget = "60s";
  double noise = 5, quantile = 50;
  app.add_option("-n,--ranks", ranks, "numbers of ranks to tune for")->capture_default_str();
  app.add_option("-t,--threads", options->threads, "ranks of each process (as many as the largest -n needs)")
      ->check(CLI::Range(1, kMostRanks));
  app.add_option("-c,--collectives", collectives, "which: allreduce,broadcast,... (all)");
  app.add_option("-b,--min-bytes", least, "smallest vector")->capture_default_str();
  app.add_option("-e,--max-bytes", most, "largest vector")->capture_default_str();
  app.add_option("-f,--factor", options->factor, "between sizes")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  app.add_option("--budget", budget, "time to measure for; more time, more repetitions")
      ->capture_default_str();
  app.add_option("--noise", noise, "percent by which another choice must be better to be fixed")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  app.add_option(
         "--quantile", quantile,
         "which of the samples counts, in percent: 50 is the median; less where others use the machine, too")
      ->check(CLI::Range(1.0, 99.0))
      ->capture_default_str();
  app.add_option("-o,--output", options->output, "the tuning file to write")->capture_default_str();
  app.add_flag(
      "--compare", options->compare,
      "write no file: compare the library's own choices (with TUTTI_TUNING_FILE, NCCL_ALGO, ... as they are) "
      "with the best measured");
  app.add_option("--limit", options->limit,
                 "with --compare: fail where the geometric mean of chosen/best is larger")
      ->check(CLI::Range(1.0, 1000.0));
  app.add_option("--csv", options->csv, "also write all medians to this file");
  app.add_flag("-q,--quiet", options->quiet, "no progress");
  app.footer("Exit status: 0, 1 when something failed, 2 for wrong use.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out, problems;
    const int code = app.exit(error, out, problems);
    if (speaks) std::fputs(out.str().c_str(), stdout);
    if (speaks) std::fputs(problems.str().c_str(), stderr);
    return code == 0 ? 0 : 2;
  }
  options->noise = noise / 100;
  options->quantile = quantile / 100;
  const auto check = [&](const char* flag, const std::string& text, const std::string& problem) {
    if (!problem.empty() && speaks)
      std::fprintf(stderr, "tutti-tune: %s %s: %s\n", flag, text.c_str(), problem.c_str());
    return problem.empty();
  };
  if (!check("--ranks", ranks, readRanks(ranks, &options->ranks)) ||
      !check("--min-bytes", least, readSize(least, &options->minBytes)) ||
      !check("--max-bytes", most, readSize(most, &options->maxBytes)) ||
      !check("--budget", budget, readSeconds(budget, &options->budgetSeconds)) ||
      !check("--max-bytes", most, options->maxBytes < options->minBytes ? "less than --min-bytes" : "") ||
      !check("--limit", std::to_string(options->limit),
             options->limit > 0 && !options->compare ? "needs --compare" : ""))
    return 2;
  if (!collectives.empty() &&
      !check("--collectives", collectives, readCollectives(collectives, &options->collectives)))
    return 2;
  return -1;
}

}  // namespace tutti::tune
