// Libraries that are opened at run time, because most machines lack them.
#pragma once

#include <string>

#include "base/status.h"

namespace tutti {

/// A library that stays open for the life of the process: those that are opened here keep state (providers,
/// device lists) that does not survive being unmapped. Its symbols are seen by nobody else (RTLD_LOCAL).
class DynamicLibrary {
 public:
  enum class If { present, loaded };
  /// Fails (ncclSystemError) when there is none; with If::loaded also when the process has not loaded it
  /// itself.
  static Result<DynamicLibrary> open(const std::string& file, If condition = If::present);

  /// Sets `function` to a symbol; an error names it when there is none.
  template <typename Function>
  Status require(const char* symbol, Function** function, const char* version = nullptr) const {
    *function = reinterpret_cast<Function*>(find(symbol, version));
    if (*function != nullptr) return Status::ok();
    return Status(ncclSystemError, fmt::format("{} has no function {}", file_, symbol));
  }
  /// Null when there is none.
  template <typename Function>
  void take(const char* symbol, Function** function) const {
    *function = reinterpret_cast<Function*>(find(symbol, nullptr));
  }

 private:
  void* find(const char* symbol, const char* version) const;

  std::string file_;
  void* handle_ = nullptr;
};

}  // namespace tutti
