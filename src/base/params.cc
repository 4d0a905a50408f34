#include "base/params.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace tutti {
namespace {

std::string_view trim(std::string_view text) {
  const auto isSpace = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && isSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && isSpace(text.back())) text.remove_suffix(1);
  return text;
}

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return result;
}

/// Base 0, as strtoll, but nothing may follow the number. Empty reason: fine.
std::string parseInteger(std::string_view text, int64_t& value) {
  const std::string copy(trim(text));
  if (copy.empty()) return "not a whole number";
  errno = 0;
  char* end = nullptr;
  value = ::strtoll(copy.c_str(), &end, 0);
  if (end == copy.c_str() || *end != '\0' || copy.find('\0') != std::string::npos)
    return "not a whole number";
  if (errno == ERANGE) return "too large for 64 bits";
  return {};
}

std::string rangeText(const char* what, int64_t min, int64_t max) {
  return fmt::format("{} {}..{}", what, min, max);
}

std::string joinWords(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : " | ") + word;
  return text;
}

/// Content of a configuration file. A file that does not exist is no problem unless it `mustExist`.
bool readConfiguration(const std::string& path, bool mustExist, std::string& text,
                       std::vector<std::string>& problems) {
  constexpr off_t kLargest = 1 << 20;
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    if (mustExist || (errno != ENOENT && errno != ENOTDIR && errno != EACCES))
      problems.push_back(systemError(errno, "configuration file {}", path).message());
    return false;
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > kLargest) {
    problems.push_back(fmt::format("configuration file {}: not a regular file of at most 1 MiB", path));
    return false;
  }
  char chunk[4096];
  for (;;) {
    const ssize_t got = ::read(fd.get(), chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) problems.push_back(systemError(errno, "read configuration file {}", path).message());
    if (got <= 0) return got == 0;
    if (text.size() > static_cast<size_t>(kLargest)) return true;
    text.append(chunk, static_cast<size_t>(got));
  }
}

/// "30", "0.5".
std::string secondsText(int64_t ms) {
  if (ms % 1000 == 0) return std::to_string(ms / 1000);
  std::string text = fmt::format("{}.{:03}", ms / 1000, ms % 1000);
  while (text.back() == '0') text.pop_back();
  return text;
}

}  // namespace

ParamBase::ParamBase(ParamRegistry& registry, const char* name, std::string standard, std::string type,
                     const char* help)
    : name_(name), help_(help), standard_(std::move(standard)), type_(std::move(type)) {
  registry.params_.push_back(this);
}

std::string ParamBase::sourceText() const {
  const std::lock_guard lock(mutex_);
  return where_.empty() ? "default" : where_;
}

IntParam::IntParam(ParamRegistry& registry, const char* name, int64_t standard, int64_t min, int64_t max,
                   const char* help)
    : IntParam(registry, name, standard, min, max, rangeText("integer", min, max), help) {}

IntParam::IntParam(ParamRegistry& registry, const char* name, int64_t standard, int64_t min, int64_t max,
                   std::string type, const char* help, std::string standardText)
    : ParamBase(registry, name, standardText.empty() ? std::to_string(standard) : std::move(standardText),
                std::move(type), help),
      standardValue_(standard),
      min_(min),
      max_(max),
      value_(standard) {}

std::string IntParam::accept(int64_t value) {
  if (value < min_ || value > max_) return fmt::format("outside {}..{}", min_, max_);
  value_.store(value, std::memory_order_relaxed);
  return {};
}

std::string IntParam::parse(std::string_view text) {
  int64_t value = 0;
  if (std::string why = parseInteger(text, value); !why.empty()) return why;
  return accept(value);
}

std::string IntParam::valueText() const { return std::to_string((*this)()); }

SizeParam::SizeParam(ParamRegistry& registry, const char* name, int64_t standard, int64_t min, int64_t max,
                     const char* help)
    : IntParam(registry, name, standard, min, max, rangeText("bytes", min, max), help) {}

std::string SizeParam::parse(std::string_view text) {
  text = trim(text);
  int shift = 0;
  if (!text.empty()) {
    const char unit = upper(text.substr(text.size() - 1))[0];
    shift = unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0;
    if (shift != 0) text.remove_suffix(1);
  }
  int64_t value = 0;
  if (std::string why = parseInteger(text, value); !why.empty())
    return why + " of bytes (K, M, G may follow)";
  if (value > (std::numeric_limits<int64_t>::max() >> shift) || value < 0)
    return fmt::format("outside {}..{}", min_, max_);
  return accept(value << shift);
}

SecondsParam::SecondsParam(ParamRegistry& registry, const char* name, int64_t standardMs, int64_t mostMs,
                           const char* help)
    : IntParam(registry, name, standardMs, 0, mostMs,
               fmt::format("seconds 0..{}, also a fraction", mostMs / 1000), help, secondsText(standardMs)) {}

std::string SecondsParam::valueText() const { return secondsText((*this)()); }

std::string SecondsParam::parse(std::string_view text) {
  text = trim(text);
  const size_t point = std::min(text.find('.'), text.size());
  const std::string_view whole = text.substr(0, point);
  const std::string_view fraction = text.substr(std::min(point + 1, text.size()));
  const auto allDigits = [](std::string_view digits) {
    return std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (!allDigits(whole) || !allDigits(fraction) || whole.size() + fraction.size() == 0)
    return "not a number of seconds, such as 30 or 0.5";
  if (whole.size() > 12) return fmt::format("more than {} seconds", max_ / 1000);
  int64_t ms = 0;
  for (const char c : whole) ms = 10 * ms + (c - '0');
  for (size_t i = 0; i < 3; ++i) ms = 10 * ms + (i < fraction.size() ? fraction[i] - '0' : 0);
  if (ms > max_) return fmt::format("more than {} seconds", max_ / 1000);
  value_.store(ms, std::memory_order_relaxed);
  return {};
}

BoolParam::BoolParam(ParamRegistry& registry, const char* name, bool standard, const char* help)
    : ParamBase(registry, name, standard ? "1" : "0", "0 | 1", help),
      standardValue_(standard),
      value_(standard) {}

std::string BoolParam::parse(std::string_view text) {
  int64_t value = 0;
  if (std::string why = parseInteger(text, value); !why.empty()) return why;
  value_.store(value != 0, std::memory_order_relaxed);
  return {};
}

StringParam::StringParam(ParamRegistry& registry, const char* name, const char* standard, const char* help)
    : ParamBase(registry, name, standard, "text", help), value_(standard) {}

std::string StringParam::operator()() const {
  const std::lock_guard lock(mutex_);
  return value_;
}

std::string StringParam::parse(std::string_view text) {
  const std::lock_guard lock(mutex_);
  value_ = std::string(trim(text));
  return {};
}

void StringParam::setStandard() {
  const std::lock_guard lock(mutex_);
  value_ = standardText();
}

EnumParam::EnumParam(ParamRegistry& registry, const char* name, int standard,
                     std::initializer_list<const char*> words, const char* help)
    : ParamBase(registry, name, *(words.begin() + standard),
                joinWords(std::vector<std::string>(words.begin(), words.end())), help),
      words_(words.begin(), words.end()),
      standardValue_(standard),
      value_(standard) {}

std::string EnumParam::parse(std::string_view text) {
  const std::string word = upper(trim(text));
  const auto found = std::find(words_.begin(), words_.end(), word);
  if (found == words_.end()) return fmt::format("not one of {}", joinWords(words_));
  value_.store(static_cast<int>(found - words_.begin()), std::memory_order_relaxed);
  return {};
}

PathLevelParam::PathLevelParam(ParamRegistry& registry, const char* name, const char* help)
    : EnumParam(registry, name, 0,
                {"AUTO", "LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"}, help) {}

std::string_view pathLevelName(std::string_view text) {
  uint32_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size() || code == std::errc::invalid_argument) return text;
  constexpr std::array kOld = {"LOC", "PIX", "PXB", "PHB", "SYS"};
  const bool isBeyond = code != std::errc() || number >= kOld.size();
  return isBeyond ? kOld.back() : kOld[number];
}

std::string PathLevelParam::parse(std::string_view text) {
  return EnumParam::parse(pathLevelName(trim(text)));
}

std::map<std::string, Params::FileValue> Params::parseFile(std::string_view text, std::string_view path,
                                                           std::vector<std::string>& problems) {
  std::map<std::string, FileValue> values;
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const size_t equals = line.find('=');
    const std::string_view name = trim(line.substr(0, std::min(equals, line.size())));
    const bool isName = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
    if (equals == std::string_view::npos || !isName || line.find('\0') != std::string_view::npos) {
      problems.push_back(fmt::format("{}:{}: expected NAME=VALUE; line ignored", path, number));
      continue;
    }
    // A comment may follow the value, set off by a space, so that values may contain '#'.
    std::string_view value = line.substr(equals + 1);
    for (size_t at = value.find('#'); at != std::string_view::npos; at = value.find('#', at + 1)) {
      if (at != 0 && value[at - 1] != ' ' && value[at - 1] != '\t') continue;
      value = value.substr(0, at);
      break;
    }
    values[std::string(name)] = {std::string(trim(value)), number};
  }
  return values;
}

void Params::load() {
  std::vector<std::string> problems;
  // Files from the least to the most important, so that later ones win.
  std::vector<std::pair<std::string, bool>> paths = {{"/etc/nccl.conf", false}};
  const char* chosen = std::getenv("NCCL_CONF_FILE");
  const char* home = std::getenv("HOME");
  if (chosen != nullptr && chosen[0] != '\0') {
    paths.emplace_back(chosen, true);
  } else if (home != nullptr && home[0] != '\0') {
    paths.emplace_back(std::string(home) + "/.nccl.conf", false);
  }
  std::map<std::string, Found> found;
  for (const auto& [path, mustExist] : paths) {
    std::string text;
    if (!readConfiguration(path, mustExist, text, problems)) continue;
    for (auto& [name, entry] : parseFile(text, path, problems))
      found[name] = {entry.value, fmt::format("{}:{}", path, entry.line), ParamSource::file};
  }
  unread_ = findUnread(found);
  for (ParamBase* param : all()) {
    if (const char* value = std::getenv(param->name()))
      found[param->name()] = {value, "environment", ParamSource::environment};
    param->setStandard();
    ParamSource source = ParamSource::standard;
    std::string where;
    if (const auto entry = found.find(param->name());
        entry != found.end() && !trim(entry->second.value).empty()) {
      const std::string why = param->parse(entry->second.value);
      if (why.empty()) {
        source = entry->second.source;
        where = entry->second.where;
      } else {
        problems.push_back(fmt::format("{}={} ({}): {}; using the default {}", param->name(),
                                       entry->second.value, entry->second.where, why,
                                       param->standardText().empty() ? "(empty)" : param->standardText()));
      }
    }
    const std::lock_guard lock(param->mutex_);
    param->where_ = std::move(where);
    param->source_.store(source, std::memory_order_release);
  }
  problems_ = std::move(problems);
}

/// What is given in the files (`found`) or the environment under our prefixes without a declaration.
std::vector<std::string> Params::findUnread(const std::map<std::string, Found>& found) const {
  std::map<std::string, std::string> given;
  for (const auto& [name, entry] : found) given[name] = entry.where;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    given[std::string(text.substr(0, text.find('=')))] = "environment";
  }
  std::vector<std::string> result;
  for (const auto& [name, where] : given) {
    if (!name.starts_with("NCCL_") && !name.starts_with("TUTTI_")) continue;
    // Read above, or by programs rather than by the library.
    if (name == "NCCL_CONF_FILE" || name == "TUTTI_RUNTIME_RESTARTED" || name.starts_with("NCCL_TESTS_"))
      continue;
    const bool declared = std::any_of(all().begin(), all().end(),
                                      [&](const ParamBase* param) { return name == param->name(); });
    if (!declared) result.push_back(fmt::format("{} ({})", name, where));
  }
  return result;
}

/// ", did you mean TUTTI_TIMEOUT?", or where to find the names.
std::string Params::suggestion(std::string_view setting) const {
  constexpr size_t kAlike = 3;
  const std::string_view name = setting.substr(0, setting.find(' '));
  const ParamBase* best = nullptr;
  size_t least = kAlike + 1;
  for (const ParamBase* param : all()) {
    if (!std::string_view(param->name()).starts_with("TUTTI_")) continue;
    const size_t distance = editDistance(name, param->name());
    if (distance >= least) continue;
    least = distance;
    best = param;
  }
  return best != nullptr ? fmt::format(", did you mean {}?", best->name()) : ": tutti-info lists them";
}

std::vector<std::string> Params::problems() const {
  const std::lock_guard lock(loadMutex_);
  return problems_;
}

std::vector<std::string> Params::unread() const {
  const std::lock_guard lock(loadMutex_);
  return unread_;
}

void Params::reload() { loadAndReport(true); }

void Params::loadAndReport(bool again) {
  std::vector<std::string> problems, unread;
  {
    const std::lock_guard lock(loadMutex_);
    if (!again && loaded_.load(std::memory_order_acquire)) return;  // another thread was first
    load();
    problems = problems_;
    unread = unread_;
    loaded_.store(true, std::memory_order_release);
    if (again) resetLog();
  }
  // Reported after the lock is gone: logging reads parameters itself. Whatever NCCL_DEBUG says: a time-out
  // that its user misspelt must not be off in silence.
  for (const std::string& problem : problems) detail::logAlways(problem);
  // The same for a name: NCCL's may be of other releases, ours can only be misspelt.
  std::string misspelt;
  for (const std::string& setting : unread) {
    if (setting.starts_with("TUTTI_")) {
      misspelt += (misspelt.empty() ? "" : "; ") + setting + " is no variable of Tutti" + suggestion(setting);
    } else {
      logInfo(Subsystem::env, "{} is set, but has no effect in this release", setting);
    }
  }
  if (!misspelt.empty()) detail::logAlways(misspelt);
}

Params& params() {
  static Params* const kParams = new Params;
  if (!kParams->loaded_.load(std::memory_order_acquire)) kParams->loadAndReport(false);
  return *kParams;
}

}  // namespace tutti
