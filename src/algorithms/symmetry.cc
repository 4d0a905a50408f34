#include "algorithms/symmetry.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "algorithms/segment_table.h"
#include "algorithms/symbolic/memory.h"

namespace tutti {
namespace {

/// The replacement of numbers that takes rank 0 to rank `by`.
struct Renaming {
  Symmetry symmetry;
  int32_t by;

  int32_t operator()(int32_t number, int32_t total) const {
    return symmetry == Symmetry::shift ? wrap(number + by, total) : number ^ by;
  }
  /// The rank that rank `by` is to rank 0, seen from `by`.
  int32_t back(int32_t total) const { return symmetry == Symmetry::shift ? wrap(-by, total) : by; }
};

int32_t totalOf(const Schedule& schedule, Buffer buffer) {
  return buffer == Buffer::scratch ? schedule.scratchSegments : schedule.segments();
}

std::vector<int32_t> numbers(int32_t first, const Pattern& pattern, int32_t count, int32_t total) {
  std::vector<int32_t> found;
  for (int32_t k = 0; k < count; ++k) found.push_back(wrappedSegment(first, pattern, k, std::max(1, total)));
  return found;
}

/// Segments of rank 0 renamed for another rank.
std::vector<int32_t> renamed(std::vector<int32_t> segments, const Renaming& rename, const Schedule& schedule,
                             Buffer buffer) {
  const int32_t total = totalOf(schedule, buffer);
  const bool scratch = buffer == Buffer::scratch;
  if (rename.symmetry == Symmetry::shift) {
    if (!scratch && total == schedule.ranks)
      for (int32_t& segment : segments) segment = rename(segment, total);
    return segments;
  }
  if (total > 1)
    for (int32_t& segment : segments) segment ^= scratch ? rename.by & (total - 1) : rename.by;
  std::ranges::sort(segments);
  return segments;
}

Status sameLocation(const Location& zero, const Location& other, int32_t i, const Schedule& schedule,
                    const Renaming& rename, const char* what) {
  if (zero.buffer != other.buffer || zero.count != other.count)
    return internalError("another {} than the renamed one", what);
  const int32_t total = totalOf(schedule, zero.buffer);
  const auto wanted =
      renamed(numbers(zero.segment.at(i), zero.pattern, zero.count, total), rename, schedule, zero.buffer);
  if (wanted != numbers(other.segment.at(i), other.pattern, other.count, total))
    return internalError("other segments of the {} than the renamed ones", what);
  return Status::ok();
}

Status sameStep(const Step& zero, const Step& other, int32_t i, const Schedule& schedule,
                const Renaming& rename) {
  if (zero.kind != other.kind || zero.finalize != other.finalize || zero.portFrom != other.portFrom ||
      zero.portTo != other.portTo)
    return internalError("another kind of step, port or mark");
  if (onlyOrders(zero.kind) || zero.team >= 0 || zero.dstTeam >= 0)
    return internalError("flags and teams are not known to symmetric proofs");
  if (receives(zero.kind) && other.peerFrom.at(i) != rename(zero.peerFrom.at(i), schedule.ranks))
    return internalError("another source than the renamed one");
  if (sends(zero.kind) && other.peerTo.at(i) != rename(zero.peerTo.at(i), schedule.ranks))
    return internalError("another target than the renamed one");
  if (readsSource(zero.kind)) TUTTI_TRY(sameLocation(zero.src, other.src, i, schedule, rename, "source"));
  if (writesDestination(zero.kind))
    TUTTI_TRY(sameLocation(zero.dst, other.dst, i, schedule, rename, "destination"));
  if (schedule.collective == Collective::allToAll) return Status::ok();  // all sizes are the same
  const SizeSegments a = sizeSegments(zero);
  const SizeSegments b = sizeSegments(other);
  if (a.first == Affine(kNoSegment) || b.first == Affine(kNoSegment))
    return a.first == b.first ? Status::ok() : internalError("sized differently");
  const int32_t count = movedSegments(zero);
  return sameLocation({Buffer::input, a.first, count, kSelf, a.pattern},
                      {Buffer::input, b.first, count, kSelf, b.pattern}, i, schedule, rename, "size");
}

/// Every step of a lane with its loops unrolled.
std::vector<std::pair<const Step*, int32_t>> unrolled(const Schedule& schedule) {
  std::vector<std::pair<const Step*, int32_t>> steps;
  if (schedule.lanes.empty()) return steps;
  for (const Block& block : schedule.lanes[0].blocks)
    for (int32_t i = 0; i < block.iterations; ++i)
      for (const Step& step : block.steps) steps.emplace_back(&step, i);
  return steps;
}

Status checkDeclaration(const Schedule& schedule, Symmetry symmetry) {
  if (symmetry == Symmetry::none) return internalError("{} declares no symmetry", schedule.name);
  if (schedule.lanes.size() > 1 || schedule.sharedScratch || schedule.sharedUserBuffers)
    return internalError("{}: only schedules of one lane and without shared memory are symmetric",
                         schedule.name);
  if (schedule.segments() != schedule.ranks && schedule.segments() != 1)
    return internalError("{} cuts its data into {} segments for {} ranks", schedule.name, schedule.segments(),
                         schedule.ranks);
  const auto isPower = [](int32_t n) { return std::has_single_bit(static_cast<uint32_t>(n)); };
  if (symmetry == Symmetry::exclusiveOr &&
      (!isPower(schedule.ranks) || (schedule.scratchSegments > 1 && !isPower(schedule.scratchSegments))))
    return internalError("{}: {} ranks, {} segments of scratch: no powers of two", schedule.name,
                         schedule.ranks, schedule.scratchSegments);
  return Status::ok();
}

/// Exact set of ranks.
class RankSet {
 public:
  RankSet() = default;
  RankSet(int32_t ranks, int32_t member) : words_(static_cast<size_t>(ranks + 63) / 64) {
    words_[static_cast<size_t>(member) / 64] = uint64_t{1} << (member % 64);
  }

  template <typename Body>
  void forEach(Body body) const {
    for (size_t w = 0; w < words_.size(); ++w)
      for (uint64_t word = words_[w]; word != 0; word &= word - 1)
        body(static_cast<int32_t>(w * 64) + std::countr_zero(word));
  }
  int32_t size() const {
    int32_t count = 0;
    for (const uint64_t word : words_) count += std::popcount(word);
    return count;
  }
  bool meets(const RankSet& other) const {
    for (size_t w = 0; w < words_.size(); ++w)
      if ((words_[w] & other.words_[w]) != 0) return true;
    return false;
  }
  void add(const RankSet& other) {
    for (size_t w = 0; w < words_.size(); ++w) words_[w] |= other.words_[w];
  }
  RankSet renamed(const Renaming& rename, int32_t ranks) const {
    RankSet result;
    result.words_.assign(words_.size(), 0);
    forEach([&](int32_t rank) {
      const int32_t now = rename(rank, ranks);
      result.words_[static_cast<size_t>(now) / 64] |= uint64_t{1} << (now % 64);
    });
    return result;
  }
  bool isOnly(int32_t member) const {
    bool only = size() == 1;
    forEach([&](int32_t rank) { only = only && rank == member; });
    return only;
  }

 private:
  std::vector<uint64_t> words_;
};

/// What lies in a segment: which input segment, whose contributions.
struct Held {
  int32_t segment = -1;  // -1: nothing
  RankSet from;
  bool raw = false;  // an input that its operator has not scaled yet
  bool final = false;
  int32_t depth = 0;
};

/// Runs rank 0 alone, slice after slice, and gives it its own messages in the place of those of others.
class LoneRank {
 public:
  LoneRank(const Schedule& schedule, Symmetry symmetry, const CheckOptions& options)
      : s_(schedule), symmetry_(symmetry), options_(options) {}

  Status run() {
    for (slice_ = 0; slice_ < 2; ++slice_) {
      begin();
      for (const auto& [step, i] : unrolled(s_))
        TUTTI_TRY(execute(*step, i).withContext("{} {}, rank 0 of {}, slice {}, \"{}\" (i = {})", s_.name,
                                                name(s_.collective), s_.ranks, slice_, toText(*step), i));
      TUTTI_TRY(checkResults());
    }
    for (const auto& [stream, queue] : queues_)
      if (!queue.empty())
        return internalError("{} {}: {} message(s) of rank 0 for rank {} are never taken", s_.name,
                             name(s_.collective), queue.size(), stream.first);
    return Status::ok();
  }

  Certificate certificate() const {
    Certificate made;
    made.algorithm = s_.name;
    made.collective = s_.collective;
    made.ranks = s_.ranks;
    made.rounds = rounds_;
    made.sent = static_cast<double>(sent_) / s_.segments();
    made.memoryTraffic = static_cast<double>(traffic_) * s_.ranks / s_.segments();
    made.reductionDepth = depth_;
    return made;
  }

 private:
  struct Message {
    std::vector<Held> values;
    int32_t slice = 0;
    int32_t round = 0;
  };

  void begin() {
    input_.assign(static_cast<size_t>(s_.segments()), {});
    output_.assign(static_cast<size_t>(s_.segments()), {});
    scratch_.assign(static_cast<size_t>(s_.scratchSegments), {});
    round_ = 0;
    for (int32_t segment = 0; segment < s_.segments(); ++segment)
      if (SymbolicMemory::exists(s_, {Buffer::input, 0, segment}))
        cell(Buffer::input, segment) = {segment, RankSet(s_.ranks, 0), isReduction(s_.collective), false, 0};
  }

  Held& cell(Buffer buffer, int32_t segment) {
    const auto index = static_cast<size_t>(segment);
    if (buffer == Buffer::scratch) return scratch_[index];
    return buffer == Buffer::input && !options_.inPlace ? input_[index] : output_[index];
  }

  Status checkExists(const Location& location, int32_t segment) const {
    if (location.rank != Affine(kSelf)) return internalError("uses another rank's memory");
    if (!SymbolicMemory::exists(s_, {location.buffer, 0, segment}))
      return internalError("there is no {}", toText(Place{location.buffer, 0, segment}));
    return Status::ok();
  }

  Status checkRange(const Location& location, int32_t i) const {
    const int32_t total = totalOf(s_, location.buffer);
    const int32_t first = location.segment.at(i);
    if (first < 0 || first >= total || location.count < 1 || location.count > total)
      return internalError("{} segments from {} on, of {}", location.count, first, total);
    return Status::ok();
  }

  Status load(const Location& location, int32_t i, std::vector<Held>* values) {
    TUTTI_TRY(checkRange(location, i));
    for (const int32_t segment :
         numbers(location.segment.at(i), location.pattern, location.count, totalOf(s_, location.buffer))) {
      TUTTI_TRY(checkExists(location, segment));
      Held held = cell(location.buffer, segment);
      if (held.segment < 0) return internalError("reads segment {} before it is written", segment);
      const bool reduces = isReduction(s_.collective);
      if (reduces && location.buffer == Buffer::input && !held.raw)
        return internalError("reads input[{}], which a result has replaced (in place)", segment);
      if (location.buffer != Buffer::input && held.raw)
        return internalError("reads segment {}, which holds the raw input (in place)", segment);
      held.raw = false;
      values->push_back(std::move(held));
    }
    traffic_ += counting() ? location.count : 0;
    return Status::ok();
  }

  Status store(const Location& location, int32_t i, const std::vector<Held>& values) {
    if (location.buffer == Buffer::input) return internalError("inputs are read-only");
    TUTTI_TRY(checkRange(location, i));
    if (location.count != static_cast<int32_t>(values.size()))
      return internalError("stores {} segments to {}", values.size(), location.count);
    size_t k = 0;
    for (const int32_t segment :
         numbers(location.segment.at(i), location.pattern, location.count, totalOf(s_, location.buffer))) {
      TUTTI_TRY(checkExists(location, segment));
      cell(location.buffer, segment) = values[k++];
    }
    traffic_ += counting() ? location.count : 0;
    return Status::ok();
  }

  Status combine(std::vector<Held>* left, const std::vector<Held>& right) {
    if (left->size() != right.size())
      return internalError("reduces {} segments with {}", left->size(), right.size());
    for (size_t k = 0; k < right.size(); ++k) {
      Held& a = (*left)[k];
      const Held& b = right[k];
      if (a.segment != b.segment)
        return internalError("reduces segment {} with segment {}", a.segment, b.segment);
      if (a.from.meets(b.from))
        return internalError("a contribution to segment {} is reduced twice", a.segment);
      a.from.add(b.from);
      a.depth = 1 + std::max(a.depth, b.depth);
    }
    return Status::ok();
  }

  /// Another rank's message to rank 0: what rank 0 sent to whoever is to it as rank 0 is to the sender.
  Status take(const Step& step, int32_t i, std::vector<Held>* values) {
    const Renaming rename{symmetry_, step.peerFrom.at(i)};
    std::deque<Message>& queue = queues_[{rename.back(s_.ranks), step.portFrom}];
    if (queue.empty())
      return internalError("deadlock: no rank has sent what all wait for, rank 0 from rank {}", rename.by);
    Message message = std::move(queue.front());
    queue.pop_front();
    if (message.slice != slice_)
      return internalError("takes a message that was sent in slice {}", message.slice);
    if (static_cast<int32_t>(message.values.size()) != movedSegments(step))
      return internalError("takes {} segments from a message of {}", movedSegments(step),
                           message.values.size());
    round_ = std::max(round_, message.round + 1);
    for (Held& held : message.values) {
      if (s_.segments() == s_.ranks) held.segment = rename(held.segment, s_.ranks);
      held.from = held.from.renamed(rename, s_.ranks);
    }
    if (symmetry_ == Symmetry::exclusiveOr) std::ranges::sort(message.values, {}, &Held::segment);
    traffic_ += counting() ? static_cast<int64_t>(message.values.size()) : 0;
    *values = std::move(message.values);
    return Status::ok();
  }

  Status give(const Step& step, int32_t i, std::vector<Held> values) {
    if (static_cast<int32_t>(values.size()) > s_.maxCount)
      return internalError("moves {} segments; maxCount is {}", values.size(), s_.maxCount);
    std::deque<Message>& queue = queues_[{step.peerTo.at(i), step.portTo}];
    const auto count = static_cast<int64_t>(values.size());
    sent_ += counting() ? count : 0;
    traffic_ += counting() ? count : 0;
    queue.push_back({std::move(values), slice_, round_});
    return Status::ok();
  }

  Status execute(const Step& step, int32_t i) {
    std::vector<Held> values;
    // All ranks stand at this step: slots are as full as before it.
    if (sends(step.kind) &&
        queues_[{step.peerTo.at(i), step.portTo}].size() >= static_cast<size_t>(options_.fifoSlots))
      return internalError("deadlock: all ranks wait for a free slot, rank 0 to rank {}", step.peerTo.at(i));
    if (receives(step.kind)) TUTTI_TRY(take(step, i, &values));
    const bool reduces = reducesMessage(step.kind);
    if (readsSource(step.kind)) {
      std::vector<Held> own;
      TUTTI_TRY(load(step.src, i, &own));
      if (step.kind == StepKind::reduceLocal) {
        std::vector<Held> sum;
        TUTTI_TRY(load(step.dst, i, &sum));
        TUTTI_TRY(combine(&sum, own));
        own = std::move(sum);
      }
      if (reduces) TUTTI_TRY(combine(&own, values));
      values = std::move(own);
    }
    TUTTI_TRY(mark(step, &values));
    TUTTI_TRY(checkSizes(step, i, values));
    if (writesDestination(step.kind)) TUTTI_TRY(store(step.dst, i, values));
    return sends(step.kind) ? give(step, i, std::move(values)) : Status::ok();
  }

  Status mark(const Step& step, std::vector<Held>* values) const {
    if (!step.finalize) return Status::ok();
    for (Held& held : *values) {
      if (held.final) return internalError("finalizes segment {} twice", held.segment);
      if (held.from.size() != s_.ranks)
        return internalError("finalizes segment {} with {} contributions", held.segment, held.from.size());
      held.final = true;
    }
    return Status::ok();
  }

  Status checkSizes(const Step& step, int32_t i, const std::vector<Held>& values) const {
    if (step.kind == StepKind::recvSend || s_.collective == Collective::allToAll) return Status::ok();
    const SizeSegments sizes = sizeSegments(step);
    if (sizes.first == Affine(kNoSegment)) return internalError("nothing tells the size: set sizeAs");
    for (size_t k = 0; k < values.size(); ++k) {
      const int32_t stated =
          wrappedSegment(sizes.first.at(i), sizes.pattern, static_cast<int32_t>(k), s_.segments());
      if (stated != values[k].segment)
        return internalError("moves segment {} with the size of segment {}", values[k].segment, stated);
    }
    return Status::ok();
  }

  Status checkResults() {
    const bool reduction = isReduction(s_.collective);
    for (int32_t segment = 0; segment < s_.segments(); ++segment) {
      if (!SymbolicMemory::exists(s_, {Buffer::output, 0, segment})) continue;
      const Held& held = output_[static_cast<size_t>(segment)];
      const int32_t wanted = s_.collective == Collective::allToAll ? 0 : segment;
      const bool right = held.segment == wanted && !held.raw &&
                         (reduction ? held.from.size() == s_.ranks && held.final : held.from.isOnly(segment));
      if (!right)
        return internalError(
            "{} {} of {} ranks, rank 0, slice {}: output[{}] is wrong (segment {}, {} contributions)",
            s_.name, name(s_.collective), s_.ranks, slice_, segment, held.segment,
            held.segment < 0 ? 0 : held.from.size());
      depth_ = std::max(depth_, held.depth);
    }
    rounds_ = std::max(rounds_, round_);
    return Status::ok();
  }

  bool counting() const { return slice_ == 0; }

  const Schedule& s_;
  Symmetry symmetry_;
  const CheckOptions& options_;
  std::vector<Held> input_;
  std::vector<Held> output_;  // in place: of both
  std::vector<Held> scratch_;
  std::map<std::pair<int32_t, int32_t>, std::deque<Message>> queues_;  // by (target, port)
  int32_t slice_ = 0;
  int32_t round_ = 0;
  int32_t rounds_ = 0;
  int32_t depth_ = 0;
  int64_t sent_ = 0;
  int64_t traffic_ = 0;
};

}  // namespace

Status checkSymmetry(const ScheduleSet& schedules, Symmetry symmetry) {
  const Schedule& zero = schedules[0];
  TUTTI_TRY(checkDeclaration(zero, symmetry));
  const auto wanted = unrolled(zero);
  for (const Schedule& other : schedules) {
    const auto steps = unrolled(other);
    if (other.lanes.size() != zero.lanes.size() || steps.size() != wanted.size())
      return internalError("{} {}: rank {} of {} has {} steps, rank 0 has {}", zero.name,
                           name(zero.collective), other.rank, zero.ranks, steps.size(), wanted.size());
    const Renaming rename{symmetry, other.rank};
    for (size_t k = 0; k < steps.size(); ++k)
      TUTTI_TRY(sameStep(*wanted[k].first, *steps[k].first, steps[k].second, zero, rename)
                    .withContext("{} {}: rank {} of {}, step {}, \"{}\", beside rank 0's \"{}\"", zero.name,
                                 name(zero.collective), other.rank, zero.ranks, k, toText(*steps[k].first),
                                 toText(*wanted[k].first)));
  }
  return Status::ok();
}

Result<Certificate> proveSymmetric(const Schedule& rankZero, Symmetry symmetry, const CheckOptions& options) {
  TUTTI_TRY(checkDeclaration(rankZero, symmetry));
  if (rankZero.rank != 0) return invalidArgument("rank {} is not rank 0", rankZero.rank);
  Certificate certificate;
  for (const bool inPlace : {false, true}) {
    CheckOptions way = options;
    way.inPlace = inPlace;
    LoneRank rank(rankZero, symmetry, way);
    TUTTI_TRY(rank.run().withContext("{}", inPlace ? "in place" : "out of place"));
    certificate = rank.certificate();
  }
  certificate.sentBound = sentBound(rankZero.collective, rankZero.ranks);
  return certificate;
}

}  // namespace tutti
