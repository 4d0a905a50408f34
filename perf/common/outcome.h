// Errors of the perf programs, as values.
#pragma once

#include <string>
#include <utility>

namespace tutti::perf {

/// What went wrong, as a sentence for a person; empty when nothing did.
class [[nodiscard]] Outcome {
 public:
  Outcome() = default;
  static Outcome ok() { return {}; }
  static Outcome failure(std::string message) {
    Outcome outcome;
    outcome.message_ = message.empty() ? "unknown error" : std::move(message);
    return outcome;
  }

  bool isOk() const { return message_.empty(); }
  const std::string& message() const { return message_; }

  /// Puts "context: " before the message of a failure.
  Outcome within(const std::string& context) const {
    return isOk() ? Outcome() : failure(context + ": " + message_);
  }

 private:
  std::string message_;
};

}  // namespace tutti::perf
