// Which instruction set the reduction kernels use.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"

namespace tutti {

/// scalar exists on every machine; the others are x86-64 levels. `neon` is the only one on ARM.
enum class SimdTarget : uint8_t { scalar, sse4, avx2, avx512, neon };
constexpr int kSimdTargets = 5;

const char* name(SimdTarget target);

/// Targets that this build has and this CPU runs, slowest first; never empty.
const std::vector<SimdTarget>& availableTargets();

/// The fastest available target.
SimdTarget bestTarget();

/// "avx2" -> SimdTarget::avx2; an error when the name is unknown or the CPU lacks it (names what there is).
Result<SimdTarget> parseTarget(std::string_view text);

}  // namespace tutti
