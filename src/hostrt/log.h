// Messages on stderr, in the form of NCCL's warnings.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace tutti::hostrt {

/// "host:pid:tid [device] hostrt NCCL WARN text".
void writeWarning(const std::string& text);
/// NCCL_DEBUG is WARN or more: the user wants to hear why calls are refused. (CUDA itself is silent.)
bool warningsWanted();

template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  writeWarning(fmt::format(format, std::forward<Args>(args)...));
}

/// Why a call is refused, for users who set NCCL_DEBUG.
template <typename... Args>
void explain(fmt::format_string<Args...> format, Args&&... args) {
  if (warningsWanted()) writeWarning(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tutti::hostrt
