// Log lines in NCCL's format:
//
//   node7:4242:4250 [3] NCCL INFO Bootstrap: listening on eth0 10.0.0.7:40001
//   host  pid  tid  device
//
//   logInfo(Subsystem::init, "rank {} of {}", rank, size);
//   logWarn("connection from {} dropped: {}", address, why);
//
// What is printed is set by NCCL_DEBUG (VERSION, WARN, INFO, TRACE), NCCL_DEBUG_SUBSYS, NCCL_DEBUG_FILE and
// NCCL_DEBUG_TIMESTAMP_FORMAT; see base/params.h. All functions are thread-safe. A line is one write(2).
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>

namespace tutti {

enum class LogLevel : uint32_t { none = 0, version = 1, warn = 2, info = 3, trace = 5 };

/// Bits of NCCL_DEBUG_SUBSYS.
enum class Subsystem : uint32_t {
  init = 1u << 0,
  coll = 1u << 1,
  p2p = 1u << 2,
  shm = 1u << 3,
  net = 1u << 4,
  graph = 1u << 5,
  tuning = 1u << 6,
  env = 1u << 7,
  alloc = 1u << 8,
  call = 1u << 9,
  proxy = 1u << 10,
  nvls = 1u << 11,
  bootstrap = 1u << 12,
  reg = 1u << 13,
  profile = 1u << 14,
  ras = 1u << 15,
  all = ~0u
};

namespace detail {
/// Level in the upper half, subsystem mask in the lower. Starts with everything on, so that the first line
/// takes the slow path, which reads the configuration and looks again.
extern std::atomic<uint64_t> logState;
void logFormatted(LogLevel level, Subsystem subsystem, fmt::string_view format, fmt::format_args args);
/// A warning that is printed whatever NCCL_DEBUG says: for a bad NCCL_DEBUG itself.
void logAlways(std::string_view text);
}  // namespace detail

/// One relaxed load. Warnings pass whatever the subsystem mask says.
inline bool logEnabled(LogLevel level, Subsystem subsystem) {
  const uint64_t state = detail::logState.load(std::memory_order_relaxed);
  if ((state >> 32) < static_cast<uint64_t>(level)) return false;
  return level <= LogLevel::warn || (state & static_cast<uint64_t>(subsystem)) != 0;
}

template <typename... Args>
void logInfo(Subsystem subsystem, fmt::format_string<Args...> format, Args&&... args) {
  if (!logEnabled(LogLevel::info, subsystem)) return;
  detail::logFormatted(LogLevel::info, subsystem, format, fmt::make_format_args(args...));
}
template <typename... Args>
void logTrace(Subsystem subsystem, fmt::format_string<Args...> format, Args&&... args) {
  if (!logEnabled(LogLevel::trace, subsystem)) return;
  detail::logFormatted(LogLevel::trace, subsystem, format, fmt::make_format_args(args...));
}
template <typename... Args>
void logWarn(fmt::format_string<Args...> format, Args&&... args) {
  if (!logEnabled(LogLevel::warn, Subsystem::all)) return;
  detail::logFormatted(LogLevel::warn, Subsystem::all, format, fmt::make_format_args(args...));
}

/// The device number shown in this thread's lines; -1 (the initial value) when it works for none.
void setLogDevice(int device);

/// Prints "Tutti version 0.1.0, NCCL version 2.28.9+tutti0.1.0" once per process when NCCL_DEBUG is VERSION
/// or more. For the first communicator that is made.
void logVersionOnce();

/// "0.1.0".
const char* tuttiVersion();

/// Forgets the configuration: the next line reads it again (ncclResetDebugInit; Params::reload calls it).
void resetLog();

}  // namespace tutti
