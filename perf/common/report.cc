#include "common/report.h"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>

#include <nccl.h>

namespace tutti::perf {
namespace {

constexpr const char* kVersion = "0.1.0";

__attribute__((format(printf, 1, 2))) std::string print(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  char buffer[1024];
  const int length = std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return length > 0 ? std::string(buffer, std::min<size_t>(static_cast<size_t>(length), sizeof buffer - 1))
                    : "";
}

std::string measurementText(const Options& options, const std::optional<Measurement>& measurement) {
  std::string text;
  if (!measurement) {
    text = print("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
    if (options.perIteration) text += print("  %7s  %7s  %7s  %7s", "N/A", "N/A", "N/A", "N/A");
    return text;
  }
  const std::string wrong = measurement->wrong ? print("%" PRIu64, *measurement->wrong) : "N/A";
  text = print("  %7s  %6.2f  %6.2f  %6s", formatMicroseconds(measurement->seconds).c_str(),
               measurement->algBytes / 1e9, measurement->busBytes / 1e9, wrong.c_str());
  if (options.perIteration && measurement->iterationSummary) {
    const Summary& summary = *measurement->iterationSummary;
    for (const double value : {summary.min, summary.p50, summary.p99, summary.max})
      text += print("  %7s", formatMicroseconds(value).c_str());
  }
  return text;
}

std::string runByText(const std::optional<Measurement>& measurement) {
  if (!measurement || !measurement->runBy || measurement->runBy->algorithm.empty()) return "-";
  const RunBy& by = *measurement->runBy;
  return by.algorithm + ":" + by.protocol + ":" + std::to_string(by.channels);
}

/// In place too where that ran by something else.
std::string runByText(const Row& row) {
  const std::string text = runByText(row.outOfPlace);
  const std::string inPlace = runByText(row.inPlace);
  return !row.inPlace || inPlace == text ? text : text + " " + inPlace;
}

}  // namespace

std::string formatMicroseconds(double seconds) {
  const double us = seconds * 1e6;
  const int decimals = us < 999.995 ? 2 : us < 9999.95 ? 1 : 0;
  return print("%.*f", decimals, us);
}

std::string headerText(const Options& options, const std::string& program, int libraryVersion) {
  std::string text;
  text += print("# tutti perf version %s nccl-headers=%d nccl-library=%d\n", kVersion, NCCL_VERSION_CODE,
                libraryVersion);
  text += print("# Collective test starting: %s\n", program.c_str());
  const bool factor = options.stepFactor > 1;
  text +=
      print("# nThread %d nGpus %d minBytes %" PRIu64 " maxBytes %" PRIu64 " step: %" PRIu64
            "(%s) warmup iters: %d iters: %d agg iters: %d validation: %d graph: %d unalign: %d\n",
            options.threads, options.devicesPerThread, options.minBytes, options.maxBytes,
            factor ? options.stepFactor : options.stepBytes, factor ? "factor" : "bytes", options.warmup,
            options.iterations, options.aggregated, options.check, options.graphLaunches, options.misalign);
  if (options.blocking == Blocking::waitAndBarrier)
    text += "# Blocking: wait and barrier after each operation\n";
  if (options.blocking == Blocking::wait) text += "# Blocking: wait after each operation, no barrier\n";
  if (options.blocking == Blocking::waitAndBarrierOuter)
    text += "# Blocking: wait and barrier after each iteration, barrier not timed\n";
  if (options.parallelInit) text += "# Parallel init: threads initialise their communicators concurrently\n";
  if (options.cpuTime) text += "# Time: of the calls on the CPU, not of the operations\n";
  if (options.statistic != Statistic::mean)
    text += print("# Time: %s of the iterations, each measured from a barrier to the end of the last rank\n",
                  options.statistic == Statistic::median ? "median" : "minimum");
  return text + "#\n# Using devices\n";
}

std::string rankText(const RankInfo& info) {
  return print("#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s\n", info.rank, info.group, info.pid,
               info.host, info.device, info.pci, info.deviceName);
}

std::string columnsText(const Options& options) {
  const char* time = options.cpuTime ? "cputime" : "time";
  const std::string blank = print("# %10s  %12s  %8s  %6s  %6s", "", "", "", "", "");
  const std::string names = print("# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
  const std::string units = print("# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
  std::string nameBlock = print("  %7s  %6s  %6s  %6s", time, "algbw", "busbw", "#wrong");
  std::string unitBlock = print("  %7s  %6s  %6s  %6s", "(us)", "(GB/s)", "(GB/s)", "");
  std::string title = print("  %19s", "out-of-place") + print("%12s", "");
  std::string title2 = print("  %17s", "in-place");
  if (options.perIteration) {
    nameBlock += print("  %7s  %7s  %7s  %7s", "i_min", "i_p50", "i_p99", "i_max");
    unitBlock += print("  %7s  %7s  %7s  %7s", "(us)", "(us)", "(us)", "(us)");
    title += print("%36s", "");
  }
  std::string text = "#\n" + blank + title + title2 + "\n";
  text += names + nameBlock + nameBlock + (options.timestamps ? print("  %19s", "timestamp") : "") +
          (options.showAlgo ? "  algo:proto:channels" : "") + "\n";
  return text + units + unitBlock + unitBlock + "\n";
}

std::string rowText(const Options& options, const Row& row, const std::string& time) {
  std::string text =
      print("%12zu  %12zu  %8s  %6s  %6d", row.bytes, row.count, row.type.c_str(), row.op.c_str(), row.root);
  text += measurementText(options, row.outOfPlace) + measurementText(options, row.inPlace);
  if (options.timestamps) text += "  " + time;
  if (options.showAlgo) text += "  " + runByText(row);
  return text + "\n";
}

std::string footerText(const Totals& totals, const std::string& program) {
  std::string text = print("# %-20s : %" PRIu64 " %s\n", "Out of bounds values", totals.wrong,
                           totals.wrong ? "FAILED" : "OK");
  const char* verdict = "";
  if (totals.requiredBusBytes) verdict = totals.fastEnough() ? "OK" : "FAILED";
  text += print("# %-20s : %g %s\n", "Avg bus bandwidth", totals.averageBusBytes / 1e9, verdict);
  return text + "#\n# Collective test concluded: " + program + "\n";
}

}  // namespace tutti::perf
