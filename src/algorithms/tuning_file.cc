#include "algorithms/tuning_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/hmac.h"
#include "base/text.h"
#include "base/xml_element.h"

namespace tutti {
namespace {

constexpr std::array kParameters = {
    CostParameterName{"alpha", &CostParameters::alpha, false, false},
    CostParameterName{"beta", &CostParameters::beta, true, false},
    CostParameterName{"gamma", &CostParameters::gamma, true, false},
    CostParameterName{"signal", &CostParameters::signal, false, true},
    CostParameterName{"perPeer", &CostParameters::perPeer, false, true},
    CostParameterName{"coreByte", &CostParameters::coreByte, true, true},
    CostParameterName{"hostByte", &CostParameters::hostByte, true, true},
    CostParameterName{"sliceAlpha", &CostParameters::sliceAlpha, false, true},
    CostParameterName{"perChannel", &CostParameters::perChannel, false, true},
    CostParameterName{"streamByte", &CostParameters::streamByte, true, true},
    CostParameterName{"switching", &CostParameters::switching, false, true},
};
// Slower than any machine; what is larger is a mistake of units.
constexpr double kMostSeconds = 1;
constexpr double kMostPerByte = 1e-3;
constexpr std::string_view kFields = "function,minbytes,maxbytes,algorithm,protocol,channels,hosts,ranks";

std::string shown(std::string_view text) {
  std::string word;
  for (const char c : text.substr(0, 40)) word += c >= ' ' && c < '\x7f' ? c : '?';
  return text.size() > 40 ? word + "..." : word;
}

bool isAlgorithmName(std::string_view word) {
  return !word.empty() && word.size() <= kTuningFileMaxName && std::ranges::all_of(word, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' || c == '/' ||
           c == '+';
  });
}

template <typename T>
std::string orAny(const std::optional<T>& value) {
  return value ? std::to_string(static_cast<int>(*value)) : "-1";
}

}  // namespace

const char* name(CostMedium medium) { return medium == CostMedium::shared ? "shared" : "network"; }

std::span<const CostParameterName> costParameterNames() { return kParameters; }

bool TuningEntry::operator==(const TuningEntry& other) const {
  return collective == other.collective && minBytes == other.minBytes && maxBytes == other.maxBytes &&
         algorithm == other.algorithm && protocol == other.protocol && channels == other.channels &&
         hosts == other.hosts && ranks == other.ranks && operations == other.operations &&
         mapped == other.mapped;
}

/// One parse.
class TuningReader {
 public:
  TuningReader(std::string_view text, std::string_view path) : text_(text) { file_.path_ = path; }

  Result<TuningFile> run() {
    if (text_.size() > kTuningFileMaxBytes)
      return invalidUsage("{}: {} bytes, but a tuning file has at most {}", file_.path_, text_.size(),
                          kTuningFileMaxBytes);
    for (std::string_view line : splitAt(text_, '\n')) {
      ++line_;
      if (line.ends_with('\r')) line.remove_suffix(1);
      line = line.substr(0, line.find('#'));
      const std::string trimmed = lowerTrimmed(line);
      if (trimmed.empty()) continue;
      TUTTI_TRY(trimmed[0] == '@' ? readParameter(line) : readEntry(line));
    }
    return std::move(file_);
  }

 private:
  template <typename... Args>
  Status error(fmt::format_string<Args...> format, Args&&... args) const {
    return invalidUsage("{}:{}: {}", file_.path_, line_, fmt::format(format, std::forward<Args>(args)...));
  }

  Status readParameter(std::string_view line) {
    const size_t equals = line.find('=');
    const std::string name = lowerTrimmed(line.substr(0, equals)).substr(1);
    if (equals == std::string_view::npos)
      return error("\"@{}\": expected @medium.parameter = value", shown(name));
    const auto found = find(name);
    if (!found) return error("\"@{}\" is no parameter; known are {}", shown(name), knownParameters());
    const auto [medium, index] = *found;
    const CostParameterName& parameter = kParameters[index];
    const std::string word = lowerTrimmed(line.substr(equals + 1));
    double value = 0;
    const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), value);
    const double most = parameter.perByte ? kMostPerByte : kMostSeconds;
    const bool good = failed == std::errc() && end == word.data() + word.size() && std::isfinite(value) &&
                      value <= most && (value > 0 || (value == 0 && parameter.mayBeZero));
    if (!good)
      return error("@{} = {}: expected seconds{}, {} and at most {}", shown(name), shown(word),
                   parameter.perByte ? " for each byte" : "",
                   parameter.mayBeZero ? "0 or more" : "more than 0", most);
    for (const TuningFile::Parameter& known : file_.parameters_)
      if (known.medium == medium && known.index == index) return error("@{} is set twice", shown(name));
    file_.parameters_.push_back({medium, index, value});
    return Status::ok();
  }

  static std::optional<std::pair<CostMedium, size_t>> find(std::string_view name) {
    for (const CostMedium medium : kCostMedia)
      for (size_t i = 0; i < kParameters.size(); ++i)
        if (name == lowerTrimmed(fmt::format("{}.{}", tutti::name(medium), kParameters[i].name)))
          return std::pair(medium, i);
    return std::nullopt;
  }

  static std::string knownParameters() {
    std::string names;
    for (const CostParameterName& one : kParameters)
      names += (names.empty() ? "" : ", ") + std::string(one.name);
    return "shared. and network. followed by " + names;
  }

  Status readEntry(std::string_view line) {
    const std::vector<std::string_view> fields = splitAt(line, ',');
    if (fields.size() < 8 || fields.size() > 10)
      return error("{} fields, but an entry has 8 to 10: {}[,operations[,mapped]]", fields.size(), kFields);
    if (file_.entries_.size() >= kTuningFileMaxEntries)
      return error("more than {} entries", kTuningFileMaxEntries);
    TuningEntry entry;
    entry.line = line_;
    const auto collective = findFunction(fields[0]);
    if (!collective)
      return error("function \"{}\" is not known; known are {}", shown(lowerTrimmed(fields[0])),
                   knownFunctions());
    entry.collective = *collective;
    std::optional<size_t> least;
    std::optional<size_t> most;
    TUTTI_TRY(number<size_t>(fields[1], "minbytes", 0, std::numeric_limits<size_t>::max(), &least));
    TUTTI_TRY(number<size_t>(fields[2], "maxbytes", 0, std::numeric_limits<size_t>::max(), &most));
    entry.minBytes = least.value_or(0);
    entry.maxBytes = most.value_or(std::numeric_limits<size_t>::max());
    if (entry.maxBytes < entry.minBytes)
      return error("maxbytes {} is less than minbytes {}", entry.maxBytes, entry.minBytes);
    entry.algorithm = lowerTrimmed(fields[3]);
    if (!isAlgorithmName(entry.algorithm))
      return error("algorithm \"{}\": expected a name", shown(entry.algorithm));
    if (const std::string protocol = lowerTrimmed(fields[4]); protocol != "-1") {
      entry.protocol = findProtocol(protocol);
      if (!entry.protocol)
        return error("protocol \"{}\" is not known; known are simple, ll, ll128", shown(protocol));
    }
    constexpr auto kMostRanks = std::numeric_limits<int32_t>::max();
    TUTTI_TRY(number<int32_t>(fields[5], "channels", 1, 64, &entry.channels));
    TUTTI_TRY(number<int32_t>(fields[6], "hosts", 1, kMostRanks, &entry.hosts));
    TUTTI_TRY(number<int32_t>(fields[7], "ranks", 1, kMostRanks, &entry.ranks));
    if (fields.size() > 8)
      TUTTI_TRY(number<int32_t>(fields[8], "operations", 1, kMostRanks, &entry.operations));
    std::optional<int32_t> mapped;
    if (fields.size() > 9) TUTTI_TRY(number<int32_t>(fields[9], "mapped", 0, 1, &mapped));
    if (mapped) entry.mapped = *mapped != 0;
    file_.entries_.push_back(std::move(entry));
    return Status::ok();
  }

  template <typename T>
  Status number(std::string_view text, const char* what, T least, T most, std::optional<T>* value) const {
    const std::string word = lowerTrimmed(text);
    if (word == "-1") return Status::ok();
    T found = 0;
    const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), found);
    if (failed != std::errc() || end != word.data() + word.size() || found < least || found > most)
      return error("{} \"{}\": expected a whole number from {} to {}, or -1 for any", what, shown(word),
                   least, most);
    *value = found;
    return Status::ok();
  }

  const std::string_view text_;
  int line_ = 0;
  TuningFile file_;
};

Result<TuningFile> TuningFile::parse(std::string_view text, std::string_view path) {
  return TuningReader(text, path).run();
}

CostParameters TuningFile::apply(CostParameters costs, CostMedium medium) const {
  for (const Parameter& parameter : parameters_)
    if (parameter.medium == medium) costs.*kParameters[parameter.index].value = parameter.value;
  return costs;
}

void TuningFile::set(CostMedium medium, const CostParameterName& parameter, double value) {
  const auto index =
      static_cast<size_t>(std::ranges::find(kParameters, std::string_view(parameter.name),
                                            [](const auto& one) { return std::string_view(one.name); }) -
                          kParameters.begin());
  std::erase_if(parameters_,
                [&](const Parameter& one) { return one.medium == medium && one.index == index; });
  parameters_.push_back({medium, index, value});
}

std::string TuningFile::text() const {
  std::string text;
  for (const Parameter& one : parameters_)
    text += fmt::format("@{}.{} = {}\n", name(one.medium), kParameters[one.index].name, one.value);
  for (const TuningEntry& entry : entries_) {
    const bool open = entry.maxBytes == std::numeric_limits<size_t>::max();
    text += fmt::format("{},{},{},{},{},{},{},{}", functionName(entry.collective), entry.minBytes,
                        open ? "-1" : std::to_string(entry.maxBytes), entry.algorithm,
                        entry.protocol ? name(*entry.protocol) : "-1", orAny(entry.channels),
                        orAny(entry.hosts), orAny(entry.ranks));
    if (entry.operations || entry.mapped) text += "," + orAny(entry.operations);
    if (entry.mapped) text += "," + orAny(entry.mapped);
    text += "\n";
  }
  return text;
}

TuningSource TuningSource::read(const std::string& path) {
  TuningSource source;
  source.path = path;
  if (path.empty()) return source;
  auto text = readXmlFile("tuning file", path, kTuningFileMaxBytes);
  if (text.isOk()) {
    source.text = std::move(text).value();
  } else {
    source.status = text.status();
  }
  return source;
}

std::string TuningSource::digest() const {
  if (path.empty()) return "(none)";
  if (!status.isOk()) return "(" + status.message() + ")";
  const Digest digest = sha256(text);
  return fmt::format("{} bytes, sha256 {:02x}", text.size(),
                     fmt::join(digest.begin(), digest.begin() + 8, ""));
}

Result<std::shared_ptr<const TuningFile>> TuningSource::load() const {
  if (path.empty()) return std::shared_ptr<const TuningFile>();
  TUTTI_TRY(status);
  TUTTI_ASSIGN(TuningFile file, TuningFile::parse(text, path));
  return std::shared_ptr<const TuningFile>(std::make_shared<const TuningFile>(std::move(file)));
}

}  // namespace tutti
