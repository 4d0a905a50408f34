#include "base/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <mutex>
#include <string>

#include "base/identity.h"
#include "base/output_file.h"
#include "base/params.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "nccl.h"

namespace tutti {
namespace {

constexpr uint64_t kUnread = ~uint64_t{0};

/// Where lines go. Never destroyed: threads may log while the process ends.
struct Sink {
  std::mutex mutex;
  UniqueFd file;  // none: standard output
  std::string timestampFormat;
  std::string host;
};
Sink& sink() {
  static Sink* const kSink = new Sink;
  return *kSink;
}

thread_local int logDevice = -1;
std::atomic<bool> versionPrinted{false};

LogLevel levelOf(int index) {
  constexpr LogLevel kLevels[] = {LogLevel::none, LogLevel::version, LogLevel::warn, LogLevel::info,
                                  LogLevel::trace};
  return kLevels[index];
}

uint32_t parseSubsystems(const std::string& text, std::string& unknown) {
  static constexpr std::pair<std::string_view, Subsystem> kNames[] = {{"INIT", Subsystem::init},
                                                                      {"COLL", Subsystem::coll},
                                                                      {"P2P", Subsystem::p2p},
                                                                      {"SHM", Subsystem::shm},
                                                                      {"NET", Subsystem::net},
                                                                      {"GRAPH", Subsystem::graph},
                                                                      {"TUNING", Subsystem::tuning},
                                                                      {"ENV", Subsystem::env},
                                                                      {"ALLOC", Subsystem::alloc},
                                                                      {"CALL", Subsystem::call},
                                                                      {"PROXY", Subsystem::proxy},
                                                                      {"NVLS", Subsystem::nvls},
                                                                      {"BOOTSTRAP", Subsystem::bootstrap},
                                                                      {"REG", Subsystem::reg},
                                                                      {"PROFILE", Subsystem::profile},
                                                                      {"RAS", Subsystem::ras},
                                                                      {"ALL", Subsystem::all}};
  const bool inverted = !text.empty() && text[0] == '^';
  uint32_t mask = 0;
  size_t start = inverted ? 1 : 0;
  while (start <= text.size()) {
    const size_t end = std::min(text.find(',', start), text.size());
    std::string token;
    for (const char c : text.substr(start, end - start))
      if (c != ' ') token.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
    bool found = token.empty();
    for (const auto& [name, bit] : kNames) {
      if (name != token) continue;
      mask |= static_cast<uint32_t>(bit);
      found = true;
    }
    if (!found) unknown += (unknown.empty() ? "" : ", ") + token;
    start = end + 1;
  }
  return inverted ? ~mask : mask;
}

std::string expandPath(const std::string& pattern, const std::string& host) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (pattern[i] != '%' || (next != 'h' && next != 'p' && next != '%')) {
      path.push_back(pattern[i]);
      continue;
    }
    path += next == 'h' ? host : next == 'p' ? std::to_string(::getpid()) : "%";
    ++i;
  }
  return path;
}

/// strftime, with %3f (1 to 9 digits) or %f for the fraction of the second.
std::string timestamp(const std::string& format) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  std::string pattern;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      pattern.push_back(format[i]);
      continue;
    }
    const bool counted =
        format[i + 1] >= '1' && format[i + 1] <= '9' && i + 2 < format.size() && format[i + 2] == 'f';
    if (counted || format[i + 1] == 'f') {
      const std::string nanos = fmt::format("{:09}", now.tv_nsec);
      pattern += nanos.substr(0, counted ? static_cast<size_t>(format[i + 1] - '0') : 6);
      i += counted ? 2 : 1;
    } else {
      pattern.push_back('%');
      pattern.push_back(format[++i]);
    }
  }
  tm parts{};
  ::localtime_r(&now.tv_sec, &parts);
  char text[256];
  const size_t size = ::strftime(text, sizeof text, pattern.c_str(), &parts);
  return std::string(text, size);
}

void writeLine(LogLevel level, std::string_view text) {
  Sink& out = sink();
  const std::lock_guard lock(out.mutex);
  std::string line;
  if (!out.timestampFormat.empty()) line = timestamp(out.timestampFormat) + " ";
  const char* name = level == LogLevel::warn ? "WARN" : level == LogLevel::trace ? "TRACE" : "INFO";
  if (level == LogLevel::version) {
    line += fmt::format("{}\n", text);
  } else {
    line += fmt::format("{}:{}:{} [{}] NCCL {} {}\n", out.host, ::getpid(), ::syscall(SYS_gettid), logDevice,
                        name, text);
  }
  // A full disk or a non-blocking pipe: a log line is not worth waiting for.
  (void)writeWithoutSignal(out.file ? out.file.get() : STDOUT_FILENO, line);
}

/// Reads the configuration if that has not happened yet.
void configure() {
  Params& p = params();  // loads, and may log on its way: nothing is locked here yet
  std::string problem;
  {
    Sink& out = sink();
    const std::lock_guard lock(out.mutex);
    if (detail::logState.load(std::memory_order_acquire) != kUnread) return;
    out.host = hostName();
    out.timestampFormat = p.debugTimestampFormat();
    out.file.reset();
    const std::string path = expandPath(p.debugFile(), out.host);
    if (!path.empty()) {
      // O_NONBLOCK: opening a FIFO must not wait for a reader.
      out.file.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644));
      if (out.file) (void)::fcntl(out.file.get(), F_SETFL, O_APPEND);
      if (!out.file)
        problem =
            systemError(errno, "NCCL_DEBUG_FILE: open {}", path).message() + "; logging to standard output";
    }
    std::string unknown;
    const uint32_t mask = parseSubsystems(p.debugSubsys(), unknown);
    if (!unknown.empty())
      problem +=
          fmt::format("{}NCCL_DEBUG_SUBSYS: no such subsystem: {}", problem.empty() ? "" : "; ", unknown);
    const auto level = static_cast<uint64_t>(levelOf(p.debug()));
    detail::logState.store(level << 32 | mask, std::memory_order_release);
  }
  if (!problem.empty()) logWarn("{}", problem);
}

}  // namespace

namespace detail {

std::atomic<uint64_t> logState{kUnread};

void logFormatted(LogLevel level, Subsystem subsystem, fmt::string_view format, fmt::format_args args) {
  const int savedErrno = errno;  // callers often log before they look at it
  try {
    if (logState.load(std::memory_order_acquire) == kUnread) configure();
    if (logEnabled(level, subsystem)) writeLine(level, fmt::vformat(format, args));
  } catch (...) {
    // Out of memory: the line is lost, the program goes on.
  }
  errno = savedErrno;
}

void logAlways(std::string_view text) {
  if (logState.load(std::memory_order_acquire) == kUnread) configure();
  writeLine(LogLevel::warn, text);
}

}  // namespace detail

void setLogDevice(int device) { logDevice = device; }

const char* tuttiVersion() { return TUTTI_VERSION; }

void logVersionOnce() {
  if (!logEnabled(LogLevel::version, Subsystem::all)) return;
  try {
    if (detail::logState.load(std::memory_order_acquire) == kUnread) configure();
    if (!logEnabled(LogLevel::version, Subsystem::all) || versionPrinted.exchange(true)) return;
    writeLine(LogLevel::version, fmt::format("Tutti version {}, NCCL version {}.{}.{}+tutti{}", TUTTI_VERSION,
                                             NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, TUTTI_VERSION));
  } catch (...) {
    // Out of memory: no line.
  }
}

void resetLog() { detail::logState.store(kUnread, std::memory_order_release); }

}  // namespace tutti
