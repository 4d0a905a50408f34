// What tutti-sim prints and draws.
#pragma once

#include <string>
#include <vector>

#include "tutti_sim/study.h"

namespace tutti::simtool {

/// "12.3 us".
std::string timeText(double seconds);
/// "1M", "24", "1.5G".
std::string sizeText(double bytes);

std::string table(const Study& study, const Options& options, const std::vector<Row>& rows);
std::string jsonText(const Options& options, const std::vector<Row>& rows);
/// Time and bus bandwidth against size (where there are several) and rank count (where there are several).
std::string plotSvg(const Study& study, const Options& options, const std::vector<Row>& rows);
/// Ways to put the ranks on hosts, with what each takes.
Result<std::string> placementText(Study& study, const Options& options);

}  // namespace tutti::simtool
