#include "algorithms/algorithm_filter.h"

#include <algorithm>
#include <array>
#include <utility>

#include "algorithms/registry.h"
#include "base/text.h"

namespace tutti {
namespace {

constexpr std::array<std::string_view, 7> kNamesOfNccl = {
    "tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"};

constexpr std::array<std::pair<std::string_view, Collective>, 8> kFunctions = {{
    {"broadcast", Collective::broadcast},
    {"reduce", Collective::reduce},
    {"allgather", Collective::allGather},
    {"reducescatter", Collective::reduceScatter},
    {"allreduce", Collective::allReduce},
    {"alltoall", Collective::allToAll},
    {"gather", Collective::gather},
    {"scatter", Collective::scatter},
}};

constexpr std::array<Protocol, 3> kProtocols = {Protocol::simple, Protocol::ll, Protocol::ll128};

/// Collectives that NCCL makes of point-to-point messages, for which it has no choice of algorithms: a list
/// without a function ("NCCL_ALGO=Ring") is not meant for them.
bool needsOwnList(Collective collective) {
  return collective == Collective::allToAll || collective == Collective::gather ||
         collective == Collective::scatter;
}

void append(std::string& list, std::string_view word) {
  if (!list.empty()) list += ", ";
  list += word;
}

/// True when `name` is `word`, or continues it after a slash.
bool standsFor(std::string_view word, std::string_view name) {
  return name.starts_with(word) && (name.size() == word.size() || name[word.size()] == '/');
}

}  // namespace

const char* name(Protocol protocol) {
  switch (protocol) {
    case Protocol::ll:
      return "ll";
    case Protocol::ll128:
      return "ll128";
    default:
      return "simple";
  }
}

std::optional<Protocol> findProtocol(std::string_view text) {
  const std::string word = lowerTrimmed(text);
  for (const Protocol protocol : kProtocols)
    if (word == name(protocol)) return protocol;
  return std::nullopt;
}

std::span<const Protocol> protocolsOfCpus() { return {kProtocols.data(), 1}; }
std::span<const Protocol> protocolsOfKernels(bool wholeLines) {
  static_assert(kProtocols.back() == Protocol::ll128);
  return {kProtocols.data(), wholeLines ? kProtocols.size() : kProtocols.size() - 1};
}

std::optional<Collective> findFunction(std::string_view text) {
  const std::string word = lowerTrimmed(text);
  for (const auto& [name, collective] : kFunctions)
    if (word == name) return collective;
  return std::nullopt;
}

std::string_view functionName(Collective collective) {
  for (const auto& [name, known] : kFunctions)
    if (known == collective) return name;
  return "sendrecv";
}

std::string knownFunctions() {
  std::string names;
  for (const auto& function : kFunctions) append(names, function.first);
  return names;
}

std::string knownAlgorithms(std::span<const std::string> more) {
  std::string names;
  for (const Algorithm& algorithm : algorithms()) append(names, algorithm.name);
  for (const std::string& name : more) append(names, name);
  for (const std::string_view name : kNamesOfNccl)
    if (findAlgorithm(name) == nullptr) append(names, name);
  return names;
}

bool isNameOfNccl(std::string_view name) {
  return std::ranges::find(kNamesOfNccl, name) != kNamesOfNccl.end();
}

Result<ChoiceFilter::List> ChoiceFilter::parseList(std::string_view text, const Words& words) {
  List list;
  std::string names = lowerTrimmed(text);
  if (!names.empty() && names[0] == '^') {
    list.inverted = true;
    names.erase(0, 1);
  }
  for (const std::string_view piece : splitAt(names, ',')) {
    const std::string word = lowerTrimmed(piece);
    if (word.empty()) return invalidUsage("a name is missing in \"{}\"", text);
    if (!words.known(word))
      return invalidUsage("\"{}\" is no {}; known are {}", word, words.noun, words.all());
    list.names.insert(word);
  }
  return list;
}

Status ChoiceFilter::read(std::string_view text, const Words& words) {
  variable_ = words.variable;
  text_ = text;
  for (const std::string_view piece : splitAt(text, ';')) {
    if (lowerTrimmed(piece).empty()) continue;
    const size_t colon = piece.find(':');
    auto list = parseList(colon == std::string_view::npos ? piece : piece.substr(colon + 1), words);
    if (!list.isOk()) return list.status().withContext("{}", describe());
    if (colon == std::string_view::npos) {
      if (hasGeneral_)
        return invalidUsage("{}: two lists without a function; write function:list", describe());
      hasGeneral_ = true;
      general_ = std::move(list).value();
      continue;
    }
    const std::string function = lowerTrimmed(piece.substr(0, colon));
    const auto known = findFunction(function);
    if (!known)
      return invalidUsage("{}: \"{}\" is no function; known are {}", describe(), function, knownFunctions());
    own_[*known] = std::move(list).value();
  }
  return Status::ok();
}

const ChoiceFilter::List* ChoiceFilter::listFor(Collective collective) const {
  if (const auto own = own_.find(collective); own != own_.end()) return &own->second;
  return hasGeneral_ && !needsOwnList(collective) ? &general_ : nullptr;
}

bool ChoiceFilter::List::has(std::string_view name) const {
  return std::ranges::any_of(names, [&](const std::string& word) { return standsFor(word, name); });
}

bool ChoiceFilter::allows(Collective collective, std::string_view name) const {
  const List* list = listFor(collective);
  return list == nullptr || list->has(name) != list->inverted;
}

bool ChoiceFilter::demands(Collective collective, std::string_view name) const {
  const List* list = listFor(collective);
  return list != nullptr && !list->inverted && list->has(name);
}

Result<AlgorithmFilter> AlgorithmFilter::parse(std::string_view text, std::span<const std::string> more,
                                               std::string_view variable) {
  AlgorithmFilter filter;
  Words words;
  words.variable = variable;
  words.noun = "algorithm";
  words.known = [more](std::string_view word) {
    const auto means = [&](std::string_view name) { return standsFor(word, lowerTrimmed(name)); };
    return isNameOfNccl(word) || std::ranges::any_of(algorithms(), means, &Algorithm::name) ||
           std::ranges::any_of(more, means);
  };
  words.all = [more] { return knownAlgorithms(more); };
  TUTTI_TRY(filter.read(text, words));
  return filter;
}

Result<ProtocolFilter> ProtocolFilter::parse(std::string_view text, std::string_view variable) {
  ProtocolFilter filter;
  Words words;
  words.variable = variable;
  words.noun = "protocol";
  words.known = [](std::string_view word) { return findProtocol(word).has_value(); };
  words.all = [] { return std::string("simple, ll, ll128"); };
  TUTTI_TRY(filter.read(text, words));
  return filter;
}

}  // namespace tutti
