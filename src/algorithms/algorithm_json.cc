#include "algorithms/algorithm_json.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "algorithms/algorithm_filter.h"
#include "algorithms/expression.h"
#include "algorithms/proof_size.h"

namespace tutti {
namespace {

constexpr int64_t kMostTeamMembers = 1 << 18;  // of all teams of all ranks

// Larger than any segment, rank or modulus: for numbers that the proof looks at.
constexpr int64_t kLargestNumber = 1 << 24;

constexpr std::array kKinds = {StepKind::send,           StepKind::recv,         StepKind::recvReduce,
                               StepKind::recvReduceSend, StepKind::recvCopySend, StepKind::recvReduceCopySend,
                               StepKind::recvSend,       StepKind::copy,         StepKind::reduceLocal,
                               StepKind::reduceTeam,     StepKind::signal,       StepKind::wait};

/// Makes the schedules of all ranks from a document whose head has been read.
class Expander {
 public:
  Expander(const JsonElement& root, const AlgorithmHead& head, int32_t ranks, int32_t rootRank)
      : document_(root), head_(head), ranks_(ranks) {
    common_.name = head.name;
    common_.collective = head.collective;
    common_.ranks = ranks;
    common_.root = hasRoot(head.collective) ? rootRank : 0;
  }

  Result<ScheduleSet> run() {
    TUTTI_TRY(readCommon());
    TUTTI_ASSIGN(const JsonElement programs, document_.required("programs"));
    TUTTI_ASSIGN(const std::vector<JsonElement> all, programs.items(kAlgorithmJsonMaxRanks));
    TUTTI_TRY(assignPrograms(programs, all));
    ScheduleSet set;
    set.reserve(static_cast<size_t>(ranks_));
    for (int32_t rank = 0; rank < ranks_; ++rank) {
      TUTTI_ASSIGN(Schedule schedule, expand(all[programOf_[static_cast<size_t>(rank)]], rank));
      set.push_back(std::move(schedule));
    }
    const int32_t most = maxCount_ ? *maxCount_ : largestMessage_;
    for (Schedule& schedule : set) schedule.maxCount = most;
    return set;
  }

 private:
  ExpressionNames names(int32_t rank = -1, bool iteration = false) const {
    return {ranks_, rank, hasRoot(common_.collective) ? common_.root : -1, iteration};
  }

  /// An integer, or an expression, that does not depend on i.
  Result<int64_t> constant(const JsonElement& element, const ExpressionNames& known, int64_t low,
                           int64_t high) const {
    if (!element.isString()) return element.integer(low, high);
    const auto value = evaluate(element.value().text, known);
    if (!value.isOk()) return element.error("\"{}\": {}", element.value().text, value.status().message());
    if (value->base < low || value->base > high)
      return element.error("\"{}\" is {}, not in {} .. {}", element.value().text, value->base, low, high);
    return value->base;
  }
  Status constantMember(const JsonElement& parent, const char* key, const ExpressionNames& known, int64_t low,
                        int64_t high, int32_t* value) const {
    const auto element = parent.member(key);
    if (!element) return Status::ok();
    TUTTI_ASSIGN(const int64_t number, constant(*element, known, low, high));
    *value = static_cast<int32_t>(number);
    return Status::ok();
  }
  static Status flagMember(const JsonElement& parent, const char* key, bool* value) {
    const auto element = parent.member(key);
    if (!element) return Status::ok();
    TUTTI_ASSIGN(*value, element->boolean());
    return Status::ok();
  }

  Status readCommon() {
    TUTTI_TRY(constantMember(document_, "parts", names(), 1, kAlgorithmJsonMaxSegments, &common_.parts));
    if (static_cast<int64_t>(common_.blocks()) * common_.parts > kAlgorithmJsonMaxSegments)
      return document_.member("parts")->error("{} blocks of {} parts: more than {} segments",
                                              common_.blocks(), common_.parts, kAlgorithmJsonMaxSegments);
    TUTTI_TRY(constantMember(document_, "scratch", names(), 0, kAlgorithmJsonMaxSegments,
                             &common_.scratchSegments));
    TUTTI_TRY(flagMember(document_, "sharedScratch", &common_.sharedScratch));
    TUTTI_TRY(flagMember(document_, "sharedUserBuffers", &common_.sharedUserBuffers));
    if (const auto element = document_.member("maxCount")) {
      TUTTI_ASSIGN(const int64_t number, constant(*element, names(), 0, kAlgorithmJsonMaxSegments));
      maxCount_ = static_cast<int32_t>(number);
    }
    size_.cells = static_cast<int64_t>(ranks_) * (common_.segments() + common_.scratchSegments);
    return grown(document_);
  }

  /// The proof, and what has been made so far, is not too large.
  Status grown(const JsonElement& where) const {
    const Status status = checkProofSize(size_);
    return status.isOk() ? status : where.error("on {} ranks: {}", ranks_, status.message());
  }

  Status assignPrograms(const JsonElement& programs, const std::vector<JsonElement>& all) {
    constexpr size_t kNone = std::numeric_limits<size_t>::max();
    programOf_.assign(static_cast<size_t>(ranks_), kNone);
    size_t others = kNone;
    for (size_t p = 0; p < all.size(); ++p) {
      TUTTI_ASSIGN(const JsonElement ranks, all[p].required("ranks"));
      if (ranks.isString() && (ranks.value().text == "all" || ranks.value().text == "others")) {
        if (others != kNone) return ranks.error("a second program for all, or all other, ranks");
        others = p;
        continue;
      }
      std::vector<JsonElement> list = {ranks};
      if (ranks.isArray()) {
        TUTTI_ASSIGN(list, ranks.items(static_cast<size_t>(ranks_)));
      }
      for (const JsonElement& element : list) {
        TUTTI_ASSIGN(const int32_t rank, rankNumber(element, names()));
        size_t& program = programOf_[static_cast<size_t>(rank)];
        if (program != kNone) return element.error("a second program for rank {}", rank);
        program = p;
      }
    }
    for (size_t rank = 0; rank < programOf_.size(); ++rank) {
      if (programOf_[rank] != kNone) continue;
      if (others == kNone) return programs.error("there is none for rank {} of {}", rank, ranks_);
      programOf_[rank] = others;
    }
    return Status::ok();
  }

  /// A rank; names wrap, numbers do not.
  Result<int32_t> rankNumber(const JsonElement& element, const ExpressionNames& known) const {
    TUTTI_ASSIGN(const Affine rank, affine(element, known, ranks_, "ranks"));
    if (rank.stride != 0) return element.error("must not depend on i");
    return rank.base;
  }

  Result<Schedule> expand(const JsonElement& program, int32_t rank) {
    static constexpr std::array kAllowed = {"ranks", "flags",  "teams", "sharedUserBuffers",
                                            "lanes", "comment"};
    TUTTI_TRY(program.onlyMembers(kAllowed));
    Schedule schedule = common_;
    schedule.rank = rank;
    TUTTI_TRY(flagMember(program, "sharedUserBuffers", &schedule.sharedUserBuffers));
    TUTTI_TRY(readTeams(program, schedule));
    flagsUsed_ = 0;
    TUTTI_ASSIGN(const JsonElement lanes, program.required("lanes"));
    TUTTI_ASSIGN(const std::vector<JsonElement> all, lanes.items(kAlgorithmJsonMaxLanes));
    size_.lanes = std::max(size_.lanes, static_cast<int64_t>(all.size()) * ranks_);
    TUTTI_TRY(grown(lanes));
    for (const JsonElement& lane : all) {
      TUTTI_ASSIGN(Lane made, readLane(lane, schedule));
      schedule.lanes.push_back(std::move(made));
    }
    int32_t flags = flagsUsed_;
    TUTTI_TRY(constantMember(program, "flags", names(rank), 0, kMaxFlags, &flags));
    schedule.flags = static_cast<int16_t>(flags);
    return tidy(std::move(schedule));
  }

  Status readTeams(const JsonElement& program, Schedule& schedule) {
    const auto teams = program.member("teams");
    if (!teams) return Status::ok();
    TUTTI_ASSIGN(const std::vector<JsonElement> all, teams->items(kAlgorithmJsonMaxRanks));
    for (const JsonElement& team : all) {
      std::vector<int32_t>& members = schedule.teams.emplace_back();
      if (team.isString() && team.value().text == "all") {
        for (int32_t rank = 0; rank < ranks_; ++rank) members.push_back(rank);
      } else {
        TUTTI_ASSIGN(const std::vector<JsonElement> elements, team.items(static_cast<size_t>(ranks_)));
        for (const JsonElement& element : elements) {
          TUTTI_ASSIGN(const int32_t member, rankNumber(element, names(schedule.rank)));
          members.push_back(member);
        }
      }
      teamMembers_ += static_cast<int64_t>(members.size());
      if (teamMembers_ > kMostTeamMembers)
        return team.error("teams of all ranks with more than {} members together", kMostTeamMembers);
    }
    return Status::ok();
  }

  Result<Lane> readLane(const JsonElement& element, const Schedule& schedule) {
    Lane lane;
    bool open = false;  // the last block takes the next step
    TUTTI_ASSIGN(const std::vector<JsonElement> entries, element.items(kAlgorithmJsonMaxRepeat));
    for (const JsonElement& entry : entries) {
      if (!entry.member("repeat")) {
        if (!open) lane.loop(1);
        open = true;
        TUTTI_ASSIGN(Step step, readStep(entry, schedule, false, 1));
        lane.blocks.back().steps.push_back(step);
        continue;
      }
      open = false;
      static constexpr std::array kAllowed = {"repeat", "steps", "comment"};
      TUTTI_TRY(entry.onlyMembers(kAllowed));
      int32_t times = 0;
      TUTTI_TRY(constantMember(entry, "repeat", names(schedule.rank), -kAlgorithmJsonMaxRepeat,
                               kAlgorithmJsonMaxRepeat, &times));
      TUTTI_ASSIGN(const JsonElement steps, entry.required("steps"));
      TUTTI_ASSIGN(const std::vector<JsonElement> all, steps.items(kAlgorithmJsonMaxRepeat));
      lane.loop(times);
      for (const JsonElement& one : all) {
        TUTTI_ASSIGN(Step step, readStep(one, schedule, true, std::max(0, times)));
        lane.blocks.back().steps.push_back(step);
      }
    }
    return lane;
  }

  Result<Step> readStep(const JsonElement& element, const Schedule& schedule, bool inLoop, int32_t times) {
    TUTTI_ASSIGN(const JsonElement what, element.required("do"));
    TUTTI_ASSIGN(const std::string_view word, what.string());
    const auto kind =
        std::ranges::find(kKinds, word, [](StepKind one) { return std::string_view(name(one)); });
    if (kind == kKinds.end())
      return what.mustBe(
          "send, recv, recvReduce, recvReduceSend, recvCopySend, "
          "recvReduceCopySend, recvSend, copy, reduceLocal, "
          "reduceTeam, signal or wait");
    Step step;
    step.kind = *kind;
    const ExpressionNames known = names(schedule.rank, inLoop);
    TUTTI_TRY(readOperands(element, schedule, known, step));
    size_.add(step, std::max(1, times), schedule.teams);  // also what never runs takes time to read
    if (receives(step.kind) || sends(step.kind))
      largestMessage_ = std::max(largestMessage_, movedSegments(step));
    TUTTI_TRY(grown(element));
    return step;
  }

  Status readOperands(const JsonElement& element, const Schedule& schedule, const ExpressionNames& known,
                      Step& step) {
    TUTTI_TRY(onlyMembersOf(element, step.kind));
    if (onlyOrders(step.kind)) return readOrder(element, schedule, known, step);
    if (receives(step.kind)) {
      TUTTI_TRY(peer(element, "from", known, &step.peerFrom));
      TUTTI_TRY(number(element, "fromPort", kVariableCountPort - 1, &step.portFrom));
    }
    if (sends(step.kind)) {
      TUTTI_TRY(peer(element, "to", known, &step.peerTo));
      TUTTI_TRY(number(element, "toPort", kVariableCountPort - 1, &step.portTo));
    }
    if (readsSource(step.kind)) TUTTI_TRY(location(element, "src", known, &step.src));
    if (writesDestination(step.kind)) TUTTI_TRY(location(element, "dst", known, &step.dst));
    if (step.kind == StepKind::recvSend)
      TUTTI_TRY(constantMember(element, "count", known, 1, kAlgorithmJsonMaxSegments, &step.dst.count));
    const int32_t teams = static_cast<int32_t>(schedule.teams.size());
    TUTTI_TRY(team(element, "team", teams, &step.team));
    TUTTI_TRY(team(element, "dstTeam", teams, &step.dstTeam));
    if (step.kind == StepKind::reduceTeam && step.team < 0) return element.error("\"team\" is missing");
    TUTTI_TRY(sizeAs(element, known, step));
    TUTTI_TRY(flagMember(element, "messageFirst", &step.messageFirst));
    return flagMember(element, "finalize", &step.finalize);
  }

  Status onlyMembersOf(const JsonElement& element, StepKind kind) const {
    std::vector<const char*> allowed = {"do", "comment"};
    if (onlyOrders(kind)) {
      allowed.insert(allowed.end(), {kind == StepKind::signal ? "to" : "from", "team", "flag"});
      return element.onlyMembers(allowed);
    }
    if (receives(kind)) allowed.insert(allowed.end(), {"from", "fromPort"});
    if (sends(kind)) allowed.insert(allowed.end(), {"to", "toPort"});
    if (readsSource(kind)) allowed.insert(allowed.end(), {"src"});
    if (writesDestination(kind)) allowed.insert(allowed.end(), {"dst"});
    const bool reduces = receives(kind) && readsSource(kind);
    if (kind == StepKind::recvSend) allowed.push_back("count");
    allowed.push_back("sizeAs");
    if (readsSource(kind) && kind != StepKind::copy && kind != StepKind::reduceLocal)
      allowed.push_back("team");
    if (writesDestination(kind) && kind != StepKind::reduceLocal) allowed.push_back("dstTeam");
    if (reduces) allowed.push_back("messageFirst");
    if (kind != StepKind::recvSend) allowed.push_back("finalize");
    return element.onlyMembers(allowed);
  }

  Status readOrder(const JsonElement& element, const Schedule& schedule, const ExpressionNames& known,
                   Step& step) {
    TUTTI_TRY(number(element, "flag", kMaxFlags - 1, &step.flag));
    flagsUsed_ = std::max(flagsUsed_, step.flag + 1);
    TUTTI_TRY(team(element, "team", static_cast<int32_t>(schedule.teams.size()), &step.team));
    const char* key = step.kind == StepKind::signal ? "to" : "from";
    if (step.team < 0)
      return peer(element, key, known, step.kind == StepKind::signal ? &step.peerTo : &step.peerFrom);
    if (const auto both = element.member(key)) return both->error("there is a team already");
    return Status::ok();
  }

  Status team(const JsonElement& element, const char* key, int32_t teams, int16_t* value) const {
    const auto member = element.member(key);
    if (!member) return Status::ok();
    if (teams == 0) return member->error("this program has no teams");
    TUTTI_ASSIGN(const int64_t index, member->integer(0, teams - 1));
    *value = static_cast<int16_t>(index);
    return Status::ok();
  }
  Status number(const JsonElement& element, const char* key, int32_t high, int16_t* value) const {
    const auto member = element.member(key);
    if (!member) return Status::ok();
    TUTTI_ASSIGN(const int64_t read, member->integer(0, high));
    *value = static_cast<int16_t>(read);
    return Status::ok();
  }
  Status peer(const JsonElement& element, const char* key, const ExpressionNames& known,
              Affine* value) const {
    TUTTI_ASSIGN(const JsonElement member, element.required(key));
    TUTTI_ASSIGN(*value, affine(member, known, ranks_, "ranks"));
    return Status::ok();
  }

  /// A number that may depend on i. Expressions with a name in them wrap at `total`; plain numbers must be
  /// below it. {"base", "stride", "modulus"} is taken as it is.
  Result<Affine> affine(const JsonElement& element, const ExpressionNames& known, int64_t total,
                        const char* what) const {
    if (element.isObject()) return exactAffine(element);
    if (total < 1) return element.error("there are no {}", what);
    if (!element.isString()) {
      if (!element.isInteger()) return element.mustBe("a number or an expression");
      if (element.value().integer < 0 || element.value().integer >= total)
        return element.error("{}: there are {} {}", element.value().integer, total, what);
      return Affine(static_cast<int32_t>(element.value().integer));
    }
    return affineOf(element, element.value().text, known, total, what);
  }

  Result<Affine> affineOf(const JsonElement& element, std::string_view text, const ExpressionNames& known,
                          int64_t total, const char* what) const {
    auto value = evaluate(text, known);
    if (!value.isOk()) return element.error("\"{}\": {}", text, value.status().message());
    if (value->modulus == 0 && value->named) {
      value->base = (value->base % total + total) % total;
      if (value->stride != 0) value->modulus = total;
    }
    if (value->stride == 0 && (value->base < 0 || value->base >= total))
      return element.error("\"{}\" is {}: there are {} {}", text, value->base, total, what);
    if (value->modulus > kLargestNumber || std::abs(value->stride) > kLargestNumber)
      return element.error("\"{}\": a number beyond {}", text, kLargestNumber);
    return Affine(static_cast<int32_t>(value->base), static_cast<int32_t>(value->stride),
                  static_cast<int32_t>(value->modulus));
  }

  static Result<Affine> exactAffine(const JsonElement& element) {
    static constexpr std::array kAllowed = {"base", "stride", "modulus"};
    TUTTI_TRY(element.onlyMembers(kAllowed));
    Affine value;
    for (const auto& [key, field] : {std::pair("base", &value.base), std::pair("stride", &value.stride),
                                     std::pair("modulus", &value.modulus)}) {
      const auto member = element.member(key);
      if (!member) continue;
      TUTTI_ASSIGN(const int64_t number, member->integer(-kLargestNumber, kLargestNumber));
      *field = static_cast<int32_t>(number);
    }
    return value;
  }

  std::pair<int32_t, const char*> segmentsOf(Buffer buffer) const {
    if (buffer == Buffer::scratch) return {common_.scratchSegments, "segments of scratch"};
    return {common_.segments(), "segments"};
  }

  static std::optional<Buffer> bufferNamed(std::string_view text) {
    if (text == "input") return Buffer::input;
    if (text == "output") return Buffer::output;
    if (text == "scratch") return Buffer::scratch;
    return std::nullopt;
  }

  /// "input[rank]", or an object for what else a location can say.
  Status location(const JsonElement& parent, const char* key, const ExpressionNames& known,
                  Location* value) const {
    TUTTI_ASSIGN(const JsonElement element, parent.required(key));
    if (element.isString()) return shortLocation(element, known, value);
    static constexpr std::array kAllowed = {"buffer", "segment", "count", "run", "stride", "rank"};
    TUTTI_TRY(element.onlyMembers(kAllowed));
    TUTTI_ASSIGN(const JsonElement bufferElement, element.required("buffer"));
    const auto buffer = bufferNamed(bufferElement.value().text);
    if (!buffer) return bufferElement.mustBe("input, output or scratch");
    value->buffer = *buffer;
    const auto [total, what] = segmentsOf(*buffer);
    TUTTI_ASSIGN(const JsonElement segment, element.required("segment"));
    TUTTI_ASSIGN(value->segment, affine(segment, known, total, what));
    TUTTI_TRY(constantMember(element, "count", known, 1, kAlgorithmJsonMaxSegments, &value->count));
    TUTTI_TRY(pattern(element, known, &value->pattern));
    const auto rank = element.member("rank");
    if (!rank) return Status::ok();
    TUTTI_ASSIGN(value->rank, affine(*rank, known, ranks_, "ranks"));
    return Status::ok();
  }

  Status shortLocation(const JsonElement& element, const ExpressionNames& known, Location* value) const {
    const std::string_view text = element.value().text;
    const size_t bracket = text.find('[');
    const auto buffer = bufferNamed(text.substr(0, bracket));
    if (!buffer || bracket == std::string_view::npos || !text.ends_with("]"))
      return element.mustBe("input[...], output[...] or scratch[...]");
    value->buffer = *buffer;
    const auto [total, what] = segmentsOf(*buffer);
    if (total < 1) return element.error("there are no {}", what);
    const std::string_view inside = text.substr(bracket + 1, text.size() - bracket - 2);
    TUTTI_ASSIGN(value->segment, affineOf(element, inside, known, total, what));
    return Status::ok();
  }

  Status pattern(const JsonElement& element, const ExpressionNames& known, Pattern* value) const {
    TUTTI_TRY(constantMember(element, "run", known, 1, kAlgorithmJsonMaxSegments, &value->run));
    return constantMember(element, "stride", known, -kAlgorithmJsonMaxSegments, kAlgorithmJsonMaxSegments,
                          &value->stride);
  }

  Status sizeAs(const JsonElement& element, const ExpressionNames& known, Step& step) const {
    const auto size = element.member("sizeAs");
    if (!size) return Status::ok();
    const int32_t total = common_.segments();
    if (!size->isObject() || size->member("base")) {
      TUTTI_ASSIGN(step.sizeAs, affine(*size, known, total, "segments"));
      return Status::ok();
    }
    static constexpr std::array kAllowed = {"segment", "run", "stride"};
    TUTTI_TRY(size->onlyMembers(kAllowed));
    TUTTI_ASSIGN(const JsonElement segment, size->required("segment"));
    TUTTI_ASSIGN(step.sizeAs, affine(segment, known, total, "segments"));
    return pattern(*size, known, &step.sizePattern);
  }

  const JsonElement document_;
  const AlgorithmHead& head_;
  const int32_t ranks_;
  Schedule common_;
  std::optional<int32_t> maxCount_;
  int32_t largestMessage_ = 0;
  int32_t flagsUsed_ = 0;
  int64_t teamMembers_ = 0;  // of all ranks' teams
  ProofSize size_;
  std::vector<size_t> programOf_;  // by rank
};

Status readRanks(const JsonElement& element, std::vector<int32_t>* ranks) {
  if (element.isString() && element.value().text == "any") return Status::ok();
  std::vector<JsonElement> list = {element};
  if (element.isArray()) {
    TUTTI_ASSIGN(list, element.items(kAlgorithmJsonMaxRanks));
    if (list.empty()) return element.error("for no number of ranks");
  } else if (!element.isInteger()) {
    return element.mustBe("a number, several numbers, or \"any\"");
  }
  for (const JsonElement& one : list) {
    TUTTI_ASSIGN(const int64_t number, one.integer(1, kAlgorithmJsonMaxRanks));
    ranks->push_back(static_cast<int32_t>(number));
  }
  std::ranges::sort(*ranks);
  return Status::ok();
}

Status readBytes(const JsonElement& parent, const char* key, uint64_t* value) {
  const auto element = parent.member(key);
  if (!element) return Status::ok();
  TUTTI_ASSIGN(const int64_t number, element->integer(0, std::numeric_limits<int64_t>::max()));
  *value = static_cast<uint64_t>(number);
  return Status::ok();
}

Status readPromise(const JsonElement& parent, const char* key, std::optional<bool>* value) {
  const auto element = parent.member(key);
  if (!element) return Status::ok();
  TUTTI_ASSIGN(*value, element->boolean());
  return Status::ok();
}

}  // namespace

bool AlgorithmHead::isFor(int32_t count) const {
  return ranks.empty() || std::ranges::find(ranks, count) != ranks.end();
}

Status JsonAlgorithm::parseHead() {
  const JsonElement root = document_.root();
  static constexpr std::array kAllowed = {
      "name",    "comment",    "collective", "ranks",         "root",
      "parts",   "maxCount",   "scratch",    "sharedScratch", "sharedUserBuffers",
      "inPlace", "outOfPlace", "minBytes",   "maxBytes",      "programs"};
  TUTTI_TRY(root.onlyMembers(kAllowed));
  TUTTI_ASSIGN(const JsonElement nameElement, root.required("name"));
  TUTTI_ASSIGN(head_.name, nameElement.string());
  if (head_.name.empty() || head_.name.size() > 100)
    return nameElement.error("must have 1 .. 100 characters");
  TUTTI_ASSIGN(const JsonElement collectiveElement, root.required("collective"));
  const auto collective = findFunction(collectiveElement.value().text);
  if (!collective) return collectiveElement.mustBe("one of " + knownFunctions());
  head_.collective = *collective;
  TUTTI_ASSIGN(const JsonElement ranks, root.required("ranks"));
  TUTTI_TRY(readRanks(ranks, &head_.ranks));
  if (const auto element = root.member("root")) {
    if (!hasRoot(head_.collective)) return element->error("{} has no root", functionName(head_.collective));
    if (!element->isString() || element->value().text != "any") {
      TUTTI_ASSIGN(const int64_t number, element->integer(0, kAlgorithmJsonMaxRanks - 1));
      head_.root = static_cast<int32_t>(number);
    }
  }
  TUTTI_TRY(readPromise(root, "inPlace", &head_.inPlace));
  TUTTI_TRY(readPromise(root, "outOfPlace", &head_.outOfPlace));
  if (head_.inPlace == false && head_.outOfPlace == false)
    return root.error("inPlace and outOfPlace are both false: the algorithm is for no call");
  TUTTI_TRY(readBytes(root, "minBytes", &head_.minBytes));
  TUTTI_TRY(readBytes(root, "maxBytes", &head_.maxBytes));
  if (head_.minBytes > head_.maxBytes)
    return root.error("minBytes {} is above maxBytes {}", head_.minBytes, head_.maxBytes);
  return root.required("programs").status();
}

Result<JsonAlgorithm> JsonAlgorithm::parse(std::string_view text, std::string_view file) {
  TUTTI_ASSIGN(JsonDocument document, JsonDocument::parse(text, file, {.bytes = kAlgorithmJsonMaxBytes}));
  JsonAlgorithm algorithm(std::move(document));
  TUTTI_TRY(algorithm.parseHead());
  return algorithm;
}

Result<ScheduleSet> JsonAlgorithm::schedules(int32_t ranks, int32_t root) const {
  if (ranks < 1 || ranks > kAlgorithmJsonMaxRanks || !head_.isFor(ranks))
    return invalidUsage("{}: {} is not for {} ranks", file(), head_.name, ranks);
  if (hasRoot(head_.collective)) {
    if (root < 0 || root >= ranks) return invalidUsage("{}: there is no rank {} of {}", file(), root, ranks);
    if (head_.root && *head_.root != root)
      return invalidUsage("{}: {} is for root {} only", file(), head_.name, *head_.root);
  }
  return Expander(document_.root(), head_, ranks, root).run();
}

}  // namespace tutti
