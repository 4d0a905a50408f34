// What a step means for its operands: one answer for all executors.
#pragma once

#include "algorithms/schedule.h"
#include "executor/host/simd/reduce.h"

namespace tutti {

/// Steps that need the collective's operator.
constexpr bool reduces(StepKind kind) {
  return reducesMessage(kind) || kind == StepKind::reduceLocal || kind == StepKind::reduceTeam;
}

/// Contributions (pieces of `input`) are scaled wherever they are read.
constexpr Scaled scaledSources(const Step& step) {
  if (!readsSource(step.kind) || step.src.buffer != Buffer::input) return Scaled::none;
  switch (step.kind) {
    case StepKind::reduceTeam:
      return Scaled::all;
    case StepKind::reduceLocal:
      return Scaled::rest;  // dst (+) src
    case StepKind::send:
      return step.team >= 0 ? Scaled::all : Scaled::first;
    case StepKind::copy:
      return Scaled::first;
    default:
      return step.messageFirst ? Scaled::rest : Scaled::first;
  }
}

}  // namespace tutti
