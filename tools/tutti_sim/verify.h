// tutti-sim --verify: proofs of algorithms.
#pragma once

#include <string>

#include "base/status.h"
#include "tutti_sim/options.h"

namespace tutti::simtool {

/// Proves every algorithm (or the one named) x collective x root x 1 .. options.maxRanks ranks, on all cores.
/// The text has the certificates for the most ranks and the number of proofs. Error: the first proof that
/// fails.
Result<std::string> verify(const Options& options);

}  // namespace tutti::simtool
