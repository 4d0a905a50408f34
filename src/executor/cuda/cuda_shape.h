// How a call is cut and how many threads run it: pure functions of the call, the same on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "algorithms/schedule.h"
#include "base/device_program.h"

namespace tutti {

/// Why a program cannot run under `protocol` but only under Simple; empty when it can.
std::string whyOnlySimple(const device::Program& program, device::Protocol protocol);

/// Longest slice, in bytes: a multiple of 64, so that no element lies across its end. Messages fit a slot of
/// the protocol, where each of maxCount pieces begins a line of its own; scratch segments fit a half.
/// kUnlimitedSlice when nothing limits it; 0 when the schedule does not fit at all.
size_t longestSlice(const Schedule& schedule, const device::Comm& comm, device::Protocol protocol);
constexpr size_t kUnlimitedSlice = size_t{1} << 46;

/// Threads of each block; `blockBytes`: what one of them moves in the call.
uint32_t threadsFor(bool isVirtual, size_t blockBytes);
/// The most that threadsFor() gives.
uint32_t mostThreads(bool isVirtual);

}  // namespace tutti
