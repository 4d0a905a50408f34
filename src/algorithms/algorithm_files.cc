#include "algorithms/algorithm_files.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "algorithms/algorithm_filter.h"
#include "algorithms/algorithm_json.h"
#include "algorithms/proof_size.h"
#include "base/hmac.h"
#include "base/log.h"
#include "base/text.h"
#include "base/xml_element.h"

namespace tutti {
namespace {

constexpr int32_t kUsualRanks = 4;

std::string spelled(std::string_view name) {
  std::string result = lower(name);
  for (char& c : result) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    if (!plain) c = '_';
  }
  return result;
}

std::string trimmed(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(' '), text.size());
  text.remove_prefix(first);
  return std::string(text.substr(0, text.find_last_not_of(' ') + 1));
}

bool looksLikeXml(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '<';
}

/// One file's algorithm before it is instantiated; of the two forms, one is set.
struct Parsed {
  std::optional<MscclProgram> xml;
  std::optional<JsonAlgorithm> json;

  static Result<Parsed> parse(std::string_view text, std::string_view file) {
    Parsed parsed;
    if (looksLikeXml(text)) {
      TUTTI_ASSIGN(parsed.xml, parseMscclXml(text, file));
    } else {
      TUTTI_ASSIGN(parsed.json, JsonAlgorithm::parse(text, file));
    }
    return parsed;
  }

  std::string_view name() const { return xml ? xml->name : json->head().name; }
  bool isFor(int32_t ranks) const { return xml ? xml->ranks() == ranks : json->head().isFor(ranks); }
  std::string ranksText() const {
    if (xml) return fmt::format("{}", xml->ranks());
    return json->head().ranks.empty() ? "any number of"
                                      : fmt::format("{}", fmt::join(json->head().ranks, ", "));
  }
  int32_t usualRanks() const {
    if (xml) return xml->ranks();
    return json->head().ranks.empty() ? kUsualRanks : json->head().ranks.front();
  }
  /// The roots for which it is, of collectives that have one; else root 0 stands for all.
  std::vector<int32_t> roots(int32_t ranks) const {
    if (xml || !hasRoot(json->head().collective)) return {0};
    if (json->head().root) return {*json->head().root};
    std::vector<int32_t> all;
    for (int32_t root = 0; root < ranks; ++root) all.push_back(root);
    return all;
  }

  Result<ImportedAlgorithm> import(int32_t ranks, int32_t root) const {
    if (!isFor(ranks))
      return invalidUsage("{}: {} is for {} ranks, not {}", xml ? xml->file : json->file(), name(),
                          ranksText(), ranks);
    if (xml) return importMscclProgram(*xml);
    const AlgorithmHead& head = json->head();
    ImportedAlgorithm imported;
    imported.name = head.name;
    imported.file = json->file();
    imported.collective = head.collective;
    imported.minBytes = head.minBytes;
    imported.maxBytes = head.maxBytes;
    TUTTI_ASSIGN(imported.schedules, json->schedules(ranks, root));
    const Status proof = proveKinds(imported, head.inPlace, head.outOfPlace);
    if (proof.isOk()) return imported;
    const std::string call = hasRoot(head.collective) ? fmt::format(" from root {}", root) : std::string();
    return Status(ncclInvalidUsage, proof
                                        .withContext("{}: not a right {} on {} ranks{}", imported.file,
                                                     tutti::name(head.collective), ranks, call)
                                        .message());
  }
};

bool anyNeeds(const LoadedAlgorithm& algorithm, bool (Schedule::*need)() const) {
  return std::ranges::any_of(algorithm.byRoot, [&](const ScheduleSet& set) {
    return std::ranges::any_of(set, [&](const Schedule& one) { return (one.*need)(); });
  });
}

/// All roots together must stay below the limits of one proof.
Result<std::shared_ptr<const LoadedAlgorithm>> loadParsed(const Parsed& parsed, std::string_view file,
                                                          int32_t ranks) {
  const auto loaded = std::make_shared<LoadedAlgorithm>();
  ProofSize together;
  for (const int32_t root : parsed.roots(ranks)) {
    TUTTI_ASSIGN(ImportedAlgorithm one, parsed.import(ranks, root));
    const ProofSize size = proofSize(one.schedules);
    together.moves += size.moves;
    together.lanes = size.lanes;
    TUTTI_TRY(checkProofSize(together).withContext("{}: for all roots", file));
    if (loaded->byRoot.empty()) {
      loaded->name = spelled(one.name);
      loaded->file = file;
      loaded->collective = one.collective;
      loaded->ranks = ranks;
      loaded->minBytes = one.minBytes;
      loaded->maxBytes = one.maxBytes;
      loaded->inPlace = loaded->outOfPlace = true;
      loaded->certificate = one.certificate;
    }
    loaded->inPlace = loaded->inPlace && one.inPlace;
    loaded->outOfPlace = loaded->outOfPlace && one.outOfPlace;
    loaded->byRoot.resize(std::max(loaded->byRoot.size(), static_cast<size_t>(root) + 1));
    loaded->byRoot[static_cast<size_t>(root)] = std::move(one.schedules);
  }
  if (!loaded->inPlace && !loaded->outOfPlace)
    return invalidUsage("{}: neither calls in place nor others are right for all roots", file);
  loaded->needsMapped = anyNeeds(*loaded, &Schedule::needsMapped);
  loaded->needsMappedUserBuffers = anyNeeds(*loaded, &Schedule::needsMappedUserBuffers);
  return std::shared_ptr<const LoadedAlgorithm>(loaded);
}

/// What a text is for a number of ranks: an algorithm, nothing, or an error. For the process's life, as
/// programs make many communicators. Proofs run one at a time; those who need the same wait for it.
class ProofCache {
 public:
  struct Entry {
    std::shared_ptr<const LoadedAlgorithm> algorithm;  // null: for other numbers of ranks
    std::string skipped;                               // then: which it is for
    Status error;
  };

  static ProofCache& ofProcess() {
    static ProofCache& cache = *new ProofCache;  // never destroyed, as communicators may be made at exit
    return cache;
  }

  Entry get(const AlgorithmTexts::File& file, int32_t ranks) {
    const Key key(file.path, sha256(file.text), ranks);
    const std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(key); found != entries_.end()) return found->second;
    if (entries_.size() >= kMost) entries_.clear();
    ++proofs_;
    return entries_.emplace(key, make(file, ranks)).first->second;
  }

  uint64_t proofs() {
    const std::lock_guard lock(mutex_);
    return proofs_;
  }

 private:
  using Key = std::tuple<std::string, Digest, int32_t>;
  static constexpr size_t kMost = 2 * kMostAlgorithmFiles;

  static Entry make(const AlgorithmTexts::File& file, int32_t ranks) {
    const auto parsed = Parsed::parse(file.text, file.path);
    if (!parsed.isOk()) return {nullptr, {}, parsed.status()};
    if (!parsed->isFor(ranks))
      return {nullptr, fmt::format("{} is for {} ranks", parsed->name(), parsed->ranksText()), {}};
    auto loaded = loadParsed(*parsed, file.path, ranks);
    if (!loaded.isOk()) return {nullptr, {}, loaded.status()};
    return {*loaded, {}, {}};
  }

  std::mutex mutex_;
  std::map<Key, Entry> entries_;
  uint64_t proofs_ = 0;
};

/// Seconds, roughly: what the certificate counts, one thing after the other. Enough to tell algorithms from
/// files apart; they do not compete with others.
double estimate(const Certificate& certificate, const CostQuery& query, const CostParameters& costs) {
  const CostParameters each = forChannels(costs, query.channels);
  const auto bytes = static_cast<double>(query.bytes);
  const double round = certificate.sent > 0 ? each.alpha : each.signal;
  const double traffic = certificate.memoryTraffic * std::max(each.hostByte, each.coreByte / query.ranks);
  const double sent = certificate.sent * (each.beta + (certificate.reductionDepth > 0 ? each.gamma : 0));
  return certificate.rounds * round + bytes * std::max(sent, traffic);
}

bool isAlgorithmFile(std::string_view name) {
  const std::string end = lower(name.substr(name.size() - std::min<size_t>(name.size(), 5)));
  return end.ends_with(".xml") || end.ends_with(".json");
}

/// The files of a folder, or the path itself where it is none.
Result<std::vector<std::string>> filesAt(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return systemError(errno, "algorithm file or folder {}", path);
  if (!S_ISDIR(info.st_mode)) return std::vector<std::string>{path};
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  if (folder == nullptr) return systemError(errno, "open folder {} of algorithm files", path);
  std::vector<std::string> files;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(folder.get());  // the stream is this thread's own
    if (entry == nullptr && errno != 0) return systemError(errno, "read folder {} of algorithm files", path);
    if (entry == nullptr) break;
    if (isAlgorithmFile(entry->d_name)) files.push_back(path + "/" + entry->d_name);
    if (files.size() > kMostAlgorithmFiles)
      return invalidUsage("folder {}: more than {} algorithm files", path, kMostAlgorithmFiles);
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

Result<ImportedAlgorithm> importAlgorithmText(std::string_view text, std::string_view file, int32_t ranks,
                                              int32_t root) {
  TUTTI_ASSIGN(const Parsed parsed, Parsed::parse(text, file));
  return parsed.import(ranks > 0 ? ranks : parsed.usualRanks(), root);
}

Result<ImportedAlgorithm> importAlgorithmFile(const std::string& path, int32_t ranks, int32_t root) {
  TUTTI_ASSIGN(const std::string text, readXmlFile("algorithm file", path, kMscclMaxFileBytes));
  return importAlgorithmText(text, path, ranks, root);
}

const ScheduleSet* LoadedAlgorithm::schedules(int32_t root) const {
  const size_t index = hasRoot(collective) ? static_cast<size_t>(root) : 0;
  return index < byRoot.size() && !byRoot[index].empty() ? &byRoot[index] : nullptr;
}

Candidate LoadedAlgorithm::candidate(std::shared_ptr<const LoadedAlgorithm> algorithm) {
  Candidate one;
  one.name = algorithm->name;
  one.file = algorithm->file;
  one.medium = algorithm->needsMappedUserBuffers ? Medium::userBuffers
               : algorithm->needsMapped          ? Medium::sharedScratch
                                                 : Medium::messages;
  one.collectives = {algorithm->collective};
  one.exactRanks = algorithm->ranks;
  one.minBytes = algorithm->minBytes;
  one.maxBytes = algorithm->maxBytes;
  if (hasRoot(algorithm->collective) && algorithm->schedules(0) == nullptr)
    one.onlyRoot = static_cast<int32_t>(algorithm->byRoot.size()) - 1;
  else if (hasRoot(algorithm->collective) && algorithm->byRoot.size() == 1 && algorithm->ranks > 1)
    one.onlyRoot = 0;
  one.inPlace = algorithm->inPlace;
  one.outOfPlace = algorithm->outOfPlace;
  one.preferred = true;
  one.generator = [algorithm](const ScheduleRequest& request) -> Result<Schedule> {
    const ScheduleSet* set = algorithm->schedules(request.root);
    if (set == nullptr || request.rank < 0 || static_cast<size_t>(request.rank) >= set->size())
      return invalidArgument("{} is not for rank {}, root {}", algorithm->name, request.rank, request.root);
    return (*set)[static_cast<size_t>(request.rank)];
  };
  one.price = [algorithm](const CostQuery& query, const CostParameters& costs) {
    return estimate(algorithm->certificate, query, costs);
  };
  return one;
}

Result<AlgorithmTexts> AlgorithmTexts::read(std::string_view list) {
  AlgorithmTexts texts;
  size_t bytes = 0;
  for (size_t from = 0; from <= list.size();) {
    const size_t end = std::min(list.find(',', from), list.size());
    const std::string path = trimmed(list.substr(from, end - from));
    from = end + 1;
    if (path.empty()) continue;
    TUTTI_ASSIGN(const std::vector<std::string> files, filesAt(path));
    for (const std::string& file : files) {
      TUTTI_ASSIGN(std::string text, readXmlFile("algorithm file", file, kMscclMaxFileBytes));
      bytes += text.size();
      if (texts.files.size() >= kMostAlgorithmFiles || bytes > kMostAlgorithmFileBytes)
        return invalidUsage("{}: more than {} files, or {} bytes, of algorithms", file, kMostAlgorithmFiles,
                            kMostAlgorithmFileBytes);
      texts.files.push_back({file, std::move(text)});
    }
  }
  return texts;
}

std::string AlgorithmTexts::digest() const {
  std::string digests;
  for (const File& file : files) {
    const Digest one = sha256(file.text);
    digests.append(one.begin(), one.end());
  }
  const Digest all = sha256(digests);
  return fmt::format("{} file(s), {:02x}", files.size(), fmt::join(all.begin(), all.begin() + 8, ""));
}

Result<std::shared_ptr<const LoadedAlgorithms>> LoadedAlgorithms::load(const AlgorithmTexts& texts,
                                                                       int32_t ranks) {
  const auto loaded = std::make_shared<LoadedAlgorithms>();
  for (const AlgorithmTexts::File& file : texts.files) {
    const ProofCache::Entry entry = ProofCache::ofProcess().get(file, ranks);
    TUTTI_TRY(entry.error);
    if (entry.algorithm == nullptr) {
      logInfo(Subsystem::tuning, "{}: {}, not {}: skipped", file.path, entry.skipped, ranks);
      continue;
    }
    const LoadedAlgorithm& one = *entry.algorithm;
    if (AlgorithmFilter::parse(one.name).isOk())
      return invalidUsage("{}: the name {} belongs to a shipped algorithm", file.path, one.name);
    if (const LoadedAlgorithm* other = loaded->find(one.name))
      return invalidUsage("{}: the name {} belongs to the algorithm of {}", file.path, one.name, other->file);
    logInfo(Subsystem::tuning, "{}: proved{}: {}", file.path,
            one.forAllCalls() ? ""
            : one.inPlace     ? " for calls in place only, so used only where NCCL_ALGO names it"
                              : " for calls out of place only, so used only where NCCL_ALGO names it",
            one.certificate.toText());
    loaded->all_.push_back(entry.algorithm);
  }
  return std::shared_ptr<const LoadedAlgorithms>(loaded);
}

const LoadedAlgorithm* LoadedAlgorithms::find(std::string_view name) const {
  const std::string wanted = lower(name);
  const auto found = std::ranges::find(all_, wanted, [](const auto& one) { return one->name; });
  return found == all_.end() ? nullptr : found->get();
}

Result<std::shared_ptr<const CandidateSet>> LoadedAlgorithms::withShipped(size_t slotBytes,
                                                                          size_t scratchBytes) const {
  if (all_.empty()) return CandidateSet::sharedShipped();
  CandidateSet set = CandidateSet::shipped();
  for (const auto& one : all_) {
    for (const ScheduleSet& schedules : one->byRoot)
      if (!schedules.empty() && schedules[0].maxSliceBytes(slotBytes, scratchBytes) == 0)
        return invalidUsage(
            "{}: {} segments in a message and {} of scratch need more than the {} and {} bytes that there "
            "are "
            "(NCCL_BUFFSIZE)",
            one->file, schedules[0].maxCount, schedules[0].scratchSegments, slotBytes, scratchBytes);
    TUTTI_TRY(set.add(LoadedAlgorithm::candidate(one)).withContext("{}", one->file));
  }
  return std::make_shared<const CandidateSet>(std::move(set));
}

uint64_t algorithmFilesProved() { return ProofCache::ofProcess().proofs(); }

}  // namespace tutti
