// What g++ cannot read in CUDA C++, rewritten: kernels, launches, __shared__ and __device__ variables.
#pragma once

#include <string>
#include <vector>

#include "host_kernels/tokens.h"

namespace tutti::hostkernels {

/// Rewrites in place. Messages (with file and line) say what is not understood; empty when all went well.
std::vector<std::string> translate(std::vector<Token>& tokens);

}  // namespace tutti::hostkernels
