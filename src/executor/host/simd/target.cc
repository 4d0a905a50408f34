#include "executor/host/simd/target.h"

#include <algorithm>
#include <string>

#include "executor/host/simd/kernel_table.h"

namespace tutti {
namespace {

/// The feature sets that Highway's targets of these names may use (hwy/ops/set_macros-inl.h).
bool cpuRuns(SimdTarget target) {
  switch (target) {
    case SimdTarget::scalar:
      return true;
#if defined(__x86_64__)
    case SimdTarget::sse4:
      return __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") &&
             __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
             __builtin_cpu_supports("aes");
    case SimdTarget::avx2:
      return cpuRuns(SimdTarget::sse4) && __builtin_cpu_supports("avx") && __builtin_cpu_supports("avx2") &&
             __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
             __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case SimdTarget::avx512:
      return cpuRuns(SimdTarget::avx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512bw");
#elif defined(__aarch64__)
    case SimdTarget::neon:
      return true;
#endif
    default:
      return false;
  }
}

}  // namespace

const char* name(SimdTarget target) {
  switch (target) {
    case SimdTarget::scalar:
      return "scalar";
    case SimdTarget::sse4:
      return "sse4";
    case SimdTarget::avx2:
      return "avx2";
    case SimdTarget::avx512:
      return "avx512";
    case SimdTarget::neon:
      return "neon";
  }
  return "unknown";
}

const std::vector<SimdTarget>& availableTargets() {
  static const auto& targets = *[] {  // never destroyed: used at exit too
    auto* found = new std::vector<SimdTarget>;
    for (int t = 0; t < kSimdTargets; ++t) {
      if (kernelTable().copy[t] != nullptr && cpuRuns(static_cast<SimdTarget>(t))) {
        found->push_back(static_cast<SimdTarget>(t));
      }
    }
    return found;
  }();
  return targets;
}

SimdTarget bestTarget() { return availableTargets().back(); }

Result<SimdTarget> parseTarget(std::string_view text) {
  std::string known;
  for (const SimdTarget target : availableTargets()) {
    if (text == name(target)) return target;
    known += known.empty() ? "" : ", ";
    known += name(target);
  }
  return invalidArgument("SIMD target \"{}\" is unknown or not supported by this CPU; it has {}", text,
                         known);
}

}  // namespace tutti
