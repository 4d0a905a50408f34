// The commands of the RAS text protocol (NCCL_RAS_ADDR, ncclras, tutti-ras): bytes in, commands out. No
// sockets, no state of the job.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tutti {

/// One line of a client.
struct RasCommand {
  enum class Kind {
    protocol,  // CLIENT PROTOCOL n
    timeout,   // TIMEOUT SECONDS
    format,    // SET FORMAT TEXT|JSON
    status,    // STATUS, VERBOSE STATUS
    monitor,   // MONITOR ...: known, not served
    unknown,
  };
  Kind kind = Kind::unknown;
  std::chrono::milliseconds limit{0};  // of timeout; 0 s in the command stands for the longest
  bool json = false;                   // of format
  bool verbose = false;                // of status
};

inline constexpr std::chrono::milliseconds kLongestRasLimit{600000};

/// Letters count in either case.
RasCommand parseRasCommand(std::string_view line);

/// Bytes become lines. A client that sends no end of line is noticed before it fills the memory.
class RasLines {
 public:
  static constexpr size_t kLongest = 1024;

  void append(std::string_view bytes) { bytes_.append(bytes); }
  /// The next line, without its end (LF or CR LF); none when it is not there yet.
  std::optional<std::string> next();
  /// What is left is longer than a line may be: there is nothing to wait for.
  bool overflown() const { return bytes_.size() > kLongest && bytes_.find('\n') == std::string::npos; }
  const std::string& rest() const { return bytes_; }

 private:
  std::string bytes_;
};

/// What a line of garbage may show in the log.
std::string printableRasText(std::string_view text);

}  // namespace tutti
