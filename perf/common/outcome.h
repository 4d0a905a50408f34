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

  /// A failure because of what the user asked for (arguments, environment): the program ends with another
  /// status.
  static Outcome misuse(std::string message) {
    Outcome outcome = failure(std::move(message));
    outcome.misuse_ = true;
    return outcome;
  }

  bool isOk() const { return message_.empty(); }
  bool isMisuse() const { return misuse_; }
  const std::string& message() const { return message_; }

  /// Puts "context: " before the message of a failure.
  Outcome within(const std::string& context) const {
    Outcome outcome = *this;
    if (!isOk()) outcome.message_ = context + ": " + message_;
    return outcome;
  }

 private:
  std::string message_;
  bool misuse_ = false;
};

}  // namespace tutti::perf
