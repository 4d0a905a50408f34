// The text that the perf programs print, in nccl-tests' form.
#pragma once

#include <string>
#include <vector>

#include "common/options.h"
#include "common/results.h"

namespace tutti::perf {

/// All functions return text that ends in a newline; nothing is printed.
std::string headerText(const Options& options, const std::string& program, int libraryVersion);
std::string rankText(const RankInfo& info);
std::string columnsText(const Options& options);
/// `time`: the time of day, used with -S.
std::string rowText(const Options& options, const Row& row, const std::string& time);
std::string footerText(const Totals& totals, const std::string& program);

/// Seven characters: "12.90", "1806.7", "10054".
std::string formatMicroseconds(double seconds);

}  // namespace tutti::perf
