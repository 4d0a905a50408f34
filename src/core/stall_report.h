// From positions to words: who waits for whom, and whether that can end.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/position.h"

namespace tutti {

/// One paragraph about a rank whose operation does not move: what it waits for, where the ranks stand that it
/// waits for (and those that these wait for), who has not made the call, whose call differs. Pure.
std::string stallReport(const std::vector<RankPosition>& positions, int rank);

struct Contradiction {
  std::string text;
  bool left = false;  // a rank has left, rather than made another call
};

/// Why the operation that `rank` is in can never end, whatever the ranks do next: it waits for a rank that
/// has left, or ranks are in calls that do not match. Nothing when it may only take long. Only ranks that
/// have not moved for `quiet` count as waiting. Pure.
std::optional<Contradiction> contradiction(const std::vector<RankPosition>& positions, int rank,
                                           std::chrono::milliseconds quiet);

/// What the asking rank gets of a large communicator: itself, those that it waits for, directly or not, and
/// some of those that differ from the rest. Small ones are left whole.
std::vector<RankPosition> condense(std::vector<RankPosition> positions, int asking);

}  // namespace tutti
