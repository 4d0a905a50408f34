// The whole of a perf program, given its collective.
#pragma once

#include "common/collective.h"

namespace tutti::perf {

/// Chooses the CUDA runtime (which may restart the program), parses, runs, prints. Returns the exit status: 0
/// when all results were right and fast enough, 1 otherwise, 2 for a wrong command line.
int runProgram(const Collective& collective, int argc, char** argv);

}  // namespace tutti::perf
