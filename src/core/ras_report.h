// What the RAS server answers, made of positions. Pure.
#pragma once

#include <string>
#include <vector>

#include "core/position.h"

namespace tutti {

/// Communicators, their ranks and where each stands; the last line is "State: ok" or "State: N problem(s)".
/// Ranks of large communicators that are like the rest are counted, not listed, unless `verbose`.
std::string rasText(const std::vector<RankPosition>& positions, bool verbose);
/// The same as one JSON object; always all ranks. docs/observability.md has the fields.
std::string rasJson(const std::vector<RankPosition>& positions);

}  // namespace tutti
