// Errors as values: Status and Result<T>.
//
//   Status openDevice(const std::string& path) {
//     const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
//     if (fd < 0) return systemError(errno, "open {}", path);      // "open /dev/x: No such file or
//     directory"
//     ...
//     return Status::ok();
//   }
//   TUTTI_TRY(openDevice(path).withContext("rank {}: find the device", rank));
#pragma once

#include <fmt/format.h>

#include <cstring>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "nccl.h"

namespace tutti {

/// ncclTimeout of NCCL 2.30. In nccl.h only for callers that ask for it; older ones never see it.
constexpr auto kTimeoutResult = static_cast<ncclResult_t>(8);

/// Outcome of a function that can fail: an ncclResult_t and, for failures, a message that says what was
/// tried, on what, and why it failed. Copying an ok Status costs nothing; a failed one shares its message.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ncclResult_t code, std::string message)
      : code_(code),
        message_(code == ncclSuccess ? nullptr : std::make_shared<const std::string>(std::move(message))) {}

  static Status ok() { return {}; }
  bool isOk() const { return code_ == ncclSuccess; }
  ncclResult_t code() const { return code_; }
  /// Empty when ok.
  const std::string& message() const {
    static const std::string& kEmpty = *new std::string;  // never destroyed, as Status is used at exit
    return message_ ? *message_ : kEmpty;
  }

  /// Puts "context: " before the message of a failure; an ok Status passes unchanged (the text is not
  /// formatted).
  template <typename... Args>
  Status withContext(fmt::format_string<Args...> format, Args&&... args) const {
    if (isOk()) return *this;
    return {code_, fmt::format(format, std::forward<Args>(args)...) + ": " + message()};
  }

  /// For places where a failure changes nothing (best effort); the name says that this was meant.
  void ignore() const {}

 private:
  ncclResult_t code_ = ncclSuccess;
  std::shared_ptr<const std::string> message_;
};

template <typename... Args>
Status invalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return {ncclInvalidArgument, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status invalidUsage(fmt::format_string<Args...> format, Args&&... args) {
  return {ncclInvalidUsage, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status internalError(fmt::format_string<Args...> format, Args&&... args) {
  return {ncclInternalError, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status remoteError(fmt::format_string<Args...> format, Args&&... args) {
  return {ncclRemoteError, fmt::format(format, std::forward<Args>(args)...)};
}
/// What an errno means. Where a limit of this process was met, its name and value: "Too many open files
/// (limit of this process: RLIMIT_NOFILE, ulimit -n, is 64)".
std::string errnoText(int error);
/// errno spelled out after the text: "bind 10.0.0.1:80: Address already in use".
template <typename... Args>
Status systemError(int error, fmt::format_string<Args...> format, Args&&... args) {
  return {ncclSystemError, fmt::format(format, std::forward<Args>(args)...) + ": " + errnoText(error)};
}
/// As systemError for a thread that could not be started; names the limits that may be the reason.
Status threadError(int error, const char* what);

/// What `body` returns; an exception of the C++ library becomes a Status. For the outermost function of a
/// thread, and of the C API.
template <typename Body>
Status statusOf(Body&& body) noexcept;

/// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Status status)
      : state_(std::in_place_index<1>, std::move(status)) {  // NOLINT(google-explicit-constructor)
    if (std::get<1>(state_).isOk())
      state_.template emplace<1>(ncclInternalError, "Result made from an ok Status");
  }

  bool isOk() const { return state_.index() == 0; }
  Status status() const { return isOk() ? Status::ok() : std::get<1>(state_); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

  template <typename... Args>
  Result<T> withContext(fmt::format_string<Args...> format, Args&&... args) && {
    if (isOk()) return std::move(*this);
    return std::get<1>(state_).withContext(format, std::forward<Args>(args)...);
  }

 private:
  std::variant<T, Status> state_;
};

namespace detail {
/// The Status of the exception that is being handled.
Status currentException() noexcept;
}  // namespace detail

template <typename Body>
Status statusOf(Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return detail::currentException();
  }
}

}  // namespace tutti

// An early return is the one thing that no function can do for its caller.
#define TUTTI_CONCAT_INNER(a, b) a##b
#define TUTTI_CONCAT(a, b) TUTTI_CONCAT_INNER(a, b)
/// Evaluates an expression that gives a Status; returns it from the enclosing function when it failed.
#define TUTTI_TRY(...)                                                                                 \
  do {                                                                                                 \
    if (::tutti::Status tuttiTryStatus = (__VA_ARGS__); !tuttiTryStatus.isOk()) return tuttiTryStatus; \
  } while (false)
/// TUTTI_ASSIGN(auto x, f()): x is the value of the Result, or the enclosing function returns its Status.
#define TUTTI_ASSIGN(lhs, ...)                                                                          \
  auto TUTTI_CONCAT(tuttiResult, __LINE__) = (__VA_ARGS__);                                             \
  if (!TUTTI_CONCAT(tuttiResult, __LINE__).isOk()) return TUTTI_CONCAT(tuttiResult, __LINE__).status(); \
  lhs = std::move(TUTTI_CONCAT(tuttiResult, __LINE__)).value()
