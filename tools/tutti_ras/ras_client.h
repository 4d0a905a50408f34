// The asking side of NCCL's RAS text protocol (docs/observability.md).
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tutti {

/// A process that can be asked.
struct RasTarget {
  std::string unixName;  // abstract Unix address; or
  std::string host;      // TCP
  std::string port;
  long pid = 0;  // of a Unix address
  std::string text() const;
};

struct RasQuestion {
  bool verbose = false;
  bool json = false;
  int timeoutSeconds = 5;
};

struct RasReply {
  std::string text;
  std::string error;  // why there is no text
};

/// Asks and waits for the whole answer, somewhat longer than the question's time-out.
RasReply askRas(const RasTarget& target, const RasQuestion& question);

/// Greets all at the same time. True for those that took the connection but have said nothing in return
/// within `limit`.
std::vector<bool> silentTargets(const std::vector<RasTarget>& targets, std::chrono::milliseconds limit);

/// The processes of this host (network namespace) that listen for questions.
std::vector<RasTarget> localRasTargets();

}  // namespace tutti
