#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "algorithms/algorithm_filter.h"
#include "algorithms/algorithm_json.h"
#include "algorithms/layout.h"

namespace tutti {
namespace {

/// The step without what may differ between ranks in one program.
Step withoutNumbers(Step step) {
  step.src.segment = step.dst.segment = step.peerFrom = step.peerTo = 0;
  step.src.rank = step.src.rank == Affine(kSelf) ? kSelf : 0;
  step.dst.rank = step.dst.rank == Affine(kSelf) ? kSelf : 0;
  step.sizeAs = step.sizeAs == Affine(kNoSegment) ? kNoSegment : 0;
  return step;
}

bool sameShape(const Schedule& a, const Schedule& b) {
  if (a.flags != b.flags || a.teams != b.teams || a.sharedUserBuffers != b.sharedUserBuffers ||
      a.lanes.size() != b.lanes.size())
    return false;
  const auto sameSteps = [](const Block& x, const Block& y) {
    return x.iterations == y.iterations &&
           std::ranges::equal(x.steps, y.steps, {}, withoutNumbers, withoutNumbers);
  };
  return std::ranges::equal(a.lanes, b.lanes, [&](const Lane& x, const Lane& y) {
    return std::ranges::equal(x.blocks, y.blocks, sameSteps);
  });
}

bool usesIteration(const Step& step) {
  return std::ranges::any_of(std::array{step.src.segment, step.src.rank, step.dst.segment, step.dst.rank,
                                        step.peerFrom, step.peerTo, step.sizeAs},
                             [](const Affine& number) { return number.stride != 0; });
}

int32_t flagsUsed(const Schedule& schedule) {
  int32_t used = 0;
  for (const Lane& lane : schedule.lanes)
    for (const Block& block : lane.blocks)
      for (const Step& step : block.steps)
        if (onlyOrders(step.kind)) used = std::max(used, step.flag + 1);
  return used;
}

int32_t largestMessage(const ScheduleSet& set) {
  int32_t most = 0;
  for (const Schedule& schedule : set)
    for (const Lane& lane : schedule.lanes)
      for (const Block& block : lane.blocks)
        for (const Step& step : block.steps)
          if (receives(step.kind) || sends(step.kind)) most = std::max(most, movedSegments(step));
  return most;
}

/// Writes one program for some ranks, whose schedules have the same shape.
class ProgramWriter {
 public:
  explicit ProgramWriter(std::vector<const Schedule*> group) : group_(std::move(group)) {}

  /// The lanes; none when some number is not the rank plus, or minus, a constant.
  std::optional<std::string> lanes() {
    std::string text = "[";
    for (size_t l = 0; l < first().lanes.size(); ++l) {
      text += l == 0 ? "\n        [" : ",\n        [";
      writeLane(l, &text);
      text += "\n        ]";
    }
    text += first().lanes.empty() ? "]" : "\n      ]";
    if (!fits_) return std::nullopt;
    return text;
  }

 private:
  const Schedule& first() const { return *group_.front(); }

  void writeLane(size_t lane, std::string* text) {
    const std::vector<Block>& blocks = first().lanes[lane].blocks;
    bool open = false;  // the block before takes further steps
    const char* separator = "\n          ";
    for (size_t b = 0; b < blocks.size(); ++b) {
      const bool plain =
          blocks[b].iterations == 1 && !open && std::ranges::none_of(blocks[b].steps, usesIteration);
      if (!plain) *text += fmt::format("{}{{\"repeat\": {}, \"steps\": [", separator, blocks[b].iterations);
      const char* inner = plain ? separator : "\n            ";
      for (size_t s = 0; s < blocks[b].steps.size(); ++s) {
        *text += inner + step(lane, b, s);
        inner = plain ? ",\n          " : ",\n            ";
      }
      if (!plain) *text += "\n          ]}";
      open = plain;
      separator = ",\n          ";
    }
  }

  template <typename Field>
  std::vector<Affine> over(size_t lane, size_t block, size_t step, Field field) const {
    std::vector<Affine> values;
    for (const Schedule* schedule : group_)
      values.push_back(field(schedule->lanes[lane].blocks[block].steps[step]));
    return values;
  }

  std::string step(size_t l, size_t b, size_t s) {
    const Step& step = first().lanes[l].blocks[b].steps[s];
    const auto all = [&](auto field) { return over(l, b, s, field); };
    const int32_t ranks = first().ranks;
    std::string text = fmt::format("{{\"do\": \"{}\"", name(step.kind));
    const auto add = [&](const char* key, const std::string& value) {
      text += fmt::format(", \"{}\": {}", key, value);
    };
    const auto addNumber = [&](const char* key, int32_t value, int32_t usual) {
      if (value != usual) add(key, fmt::format("{}", value));
    };
    const bool orders = onlyOrders(step.kind);
    if (orders && step.flag != 0) addNumber("flag", step.flag, 0);
    if (receives(step.kind) || (step.kind == StepKind::wait && step.team < 0)) {
      add("from", number(all([](const Step& one) { return one.peerFrom; }), ranks));
      addNumber("fromPort", step.portFrom, 0);
    }
    if (readsSource(step.kind))
      add("src", location(step.src, all([](const Step& one) { return one.src.segment; }),
                          all([](const Step& one) { return one.src.rank; })));
    addNumber("team", step.team, -1);
    if (writesDestination(step.kind))
      add("dst", location(step.dst, all([](const Step& one) { return one.dst.segment; }),
                          all([](const Step& one) { return one.dst.rank; })));
    addNumber("dstTeam", step.dstTeam, -1);
    if (step.kind == StepKind::recvSend) addNumber("count", step.dst.count, 1);
    if (sends(step.kind) || (step.kind == StepKind::signal && step.team < 0)) {
      add("to", number(all([](const Step& one) { return one.peerTo; }), ranks));
      addNumber("toPort", step.portTo, 0);
    }
    if (step.sizeAs != Affine(kNoSegment)) {
      const std::string size = number(all([](const Step& one) { return one.sizeAs; }), first().segments());
      add("sizeAs", step.sizePattern.consecutive()
                        ? size
                        : fmt::format("{{\"segment\": {}{}}}", size, pattern(step.sizePattern)));
    }
    if (step.messageFirst) add("messageFirst", "true");
    if (step.finalize) add("finalize", "true");
    return text + "}";
  }

  static std::string pattern(const Pattern& pattern) {
    std::string text;
    if (pattern.run != 1) text += fmt::format(", \"run\": {}", pattern.run);
    if (pattern.stride != 1) text += fmt::format(", \"stride\": {}", pattern.stride);
    return text;
  }

  std::string location(const Location& one, const std::vector<Affine>& segments,
                       const std::vector<Affine>& ranks) {
    static constexpr const char* kNames[] = {"input", "output", "scratch"};
    const char* buffer = kNames[static_cast<size_t>(one.buffer)];
    const int32_t total = one.buffer == Buffer::scratch ? first().scratchSegments : first().segments();
    std::string segment = number(segments, total);
    if (one.count == 1 && one.pattern.consecutive() && one.rank == Affine(kSelf) && segment[0] != '{') {
      std::erase(segment, '"');
      return fmt::format("\"{}[{}]\"", buffer, segment);
    }
    std::string text = fmt::format("{{\"buffer\": \"{}\", \"segment\": {}", buffer, segment);
    if (one.count != 1) text += fmt::format(", \"count\": {}", one.count);
    text += pattern(one.pattern);
    if (one.rank != Affine(kSelf)) text += fmt::format(", \"rank\": {}", number(ranks, first().ranks));
    return text + "}";
  }

  /// The numbers of all ranks of the group as one text. Where the reader wraps them at `total` by itself, the
  /// text says no modulus.
  std::string number(const std::vector<Affine>& values, int32_t total) {
    const Affine& one = values.front();
    const bool constant = one.stride == 0 && one.modulus == 0 && one.base >= 0 && one.base < total;
    const bool wraps = one.stride != 0 && one.modulus == total && one.base >= 0 && one.base < total;
    for (const int32_t slope : {0, 1, -1}) {
      if ((constant || wraps) && follow(values, slope, total)) return expression(one, slope, total, false);
      if (one.stride != 0 && one.modulus > 0 && follow(values, slope, 0))
        return expression(one, slope, one.modulus, true);
    }
    if (!follow(values, 0, 0)) fits_ = false;
    return fmt::format(R"({{"base": {}, "stride": {}, "modulus": {}}})", one.base, one.stride, one.modulus);
  }

  /// Rank r's number is that of rank 0 plus slope x r, wrapped at `wrapsAt` where that is > 0.
  bool follow(const std::vector<Affine>& values, int32_t slope, int32_t wrapsAt) const {
    for (size_t k = 0; k < values.size(); ++k) {
      Affine expected = values.front();
      if (slope != 0) expected.base += slope * (group_[k]->rank - first().rank);
      if (slope != 0 && wrapsAt > 0) expected.base = wrap(expected.base, wrapsAt);
      if (values[k] != expected) return false;
    }
    return true;
  }

  std::string expression(const Affine& one, int32_t slope, int32_t wrapsAt, bool saysModulus) const {
    int32_t constant = one.base - slope * first().rank;
    if (!saysModulus) {
      constant = wrap(constant, wrapsAt);
      if (slope == 1 && constant > wrapsAt / 2) constant -= wrapsAt;  // rank-1 rather than rank+7
    }
    std::string text = slope == 1 ? (constant == 0 ? std::string("rank") : fmt::format("rank{:+}", constant))
                                  : fmt::format("{}{}", constant, slope == 0 ? "" : "-rank");
    if (one.stride == 0 && slope == 0) return text;
    if (one.stride == 1 || one.stride == -1) {
      text += one.stride > 0 ? "+i" : "-i";
    } else if (one.stride != 0) {
      text += fmt::format("{:+}*i", one.stride);
    }
    if (saysModulus) text += fmt::format(" mod {}", wrapsAt);
    return "\"" + text + "\"";
  }

  const std::vector<const Schedule*> group_;
  bool fits_ = true;
};

std::string teamsText(const Schedule& schedule) {
  std::string text;
  for (const std::vector<int32_t>& team : schedule.teams)
    text += fmt::format("{}[{}]", text.empty() ? "" : ", ", fmt::join(team, ", "));
  return "[" + text + "]";
}

std::string programText(const Schedule& schedule, const Schedule& common, const std::string& ranks,
                        const std::string& lanes) {
  std::string text = "    {\n      \"ranks\": " + ranks + ",\n";
  if (schedule.flags != flagsUsed(schedule)) text += fmt::format("      \"flags\": {},\n", schedule.flags);
  if (!schedule.teams.empty()) text += "      \"teams\": " + teamsText(schedule) + ",\n";
  if (schedule.sharedUserBuffers != common.sharedUserBuffers)
    text += fmt::format("      \"sharedUserBuffers\": {},\n", schedule.sharedUserBuffers);
  return text + "      \"lanes\": " + lanes + "\n    }";
}

std::string programsText(const ScheduleSet& set) {
  std::vector<const Schedule*> everyone;
  for (const Schedule& schedule : set) everyone.push_back(&schedule);
  if (std::ranges::all_of(set, [&](const Schedule& one) { return sameShape(one, set[0]); }))
    if (const auto lanes = ProgramWriter(everyone).lanes())
      return programText(set[0], set[0], "\"all\"", *lanes);
  std::string text;
  for (const Schedule& schedule : set) {
    const auto lanes = ProgramWriter({&schedule}).lanes();
    text += text.empty() ? "" : ",\n";
    text += programText(schedule, set[0], fmt::format("{}", schedule.rank), *lanes);
  }
  return text;
}

}  // namespace

std::string toJson(const ScheduleSet& schedules, uint64_t minBytes, uint64_t maxBytes) {
  const Schedule& one = schedules.front();
  std::string text = fmt::format("{{\n  \"name\": {},\n  \"collective\": \"{}\",\n  \"ranks\": {},\n",
                                 jsonQuoted(one.name), functionName(one.collective), one.ranks);
  const auto add = [&](const char* key, auto value, auto usual) {
    if (value != usual) text += fmt::format("  \"{}\": {},\n", key, value);
  };
  if (hasRoot(one.collective)) text += fmt::format("  \"root\": {},\n", one.root);
  add("minBytes", minBytes, uint64_t{0});
  if (maxBytes <= static_cast<uint64_t>(INT64_MAX)) add("maxBytes", maxBytes, UINT64_MAX);
  add("parts", one.parts, 1);
  add("maxCount", one.maxCount, largestMessage(schedules));
  add("scratch", one.scratchSegments, 0);
  add("sharedScratch", one.sharedScratch, false);
  add("sharedUserBuffers", one.sharedUserBuffers, false);
  return text + "  \"programs\": [\n" + programsText(schedules) + "\n  ]\n}\n";
}

}  // namespace tutti
