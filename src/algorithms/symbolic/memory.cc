#include "algorithms/symbolic/memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "algorithms/segment_table.h"

namespace tutti {
namespace {

bool holdsOwnBlockOnly(Collective collective, Buffer buffer) {
  switch (collective) {
    case Collective::allGather:
    case Collective::gather:
      return buffer == Buffer::input;
    case Collective::reduceScatter:
    case Collective::scatter:
      return buffer == Buffer::output;
    default:
      return false;
  }
}

bool rootOnly(Collective collective, Buffer buffer) {
  if (buffer == Buffer::input)
    return collective == Collective::broadcast || collective == Collective::scatter ||
           collective == Collective::sendRecv;
  return collective == Collective::reduce || collective == Collective::gather;
}

}  // namespace

std::string toText(const Place& place) {
  const char* names[] = {"input", "output", "scratch"};
  return fmt::format("{}[{}] of rank {}", names[static_cast<int>(place.buffer)], place.segment, place.owner);
}

SymbolicMemory::SymbolicMemory(const Options& options, const HappensBefore& order)
    : options_(options), order_(order), ranks_(static_cast<size_t>(options.ranks)) {}

bool SymbolicMemory::exists(const Schedule& schedule, const Place& place) {
  if (place.owner < 0 || place.owner >= schedule.ranks || place.segment < 0) return false;
  if (place.buffer == Buffer::scratch) return place.segment < schedule.scratchSegments;
  if (place.segment >= schedule.segments()) return false;
  if (rootOnly(schedule.collective, place.buffer) && place.owner != schedule.root) return false;
  return !holdsOwnBlockOnly(schedule.collective, place.buffer) ||
         place.segment / schedule.parts == place.owner;
}

size_t SymbolicMemory::userIndex(const Schedule& schedule, int32_t segment, int32_t slice) const {
  return static_cast<size_t>(slice) * static_cast<size_t>(schedule.segments()) + static_cast<size_t>(segment);
}

void SymbolicMemory::beginCall(const Schedule& schedule, int32_t call) {
  RankMemory& memory = ranks_[static_cast<size_t>(schedule.rank)];
  if (memory.schedule != nullptr && memory.schedule->sharedScratch) memory.sharedRuns += options_.slices;
  memory.call = call;
  memory.schedule = &schedule;
  const size_t firstLane = static_cast<size_t>(schedule.rank * options_.lanesPerRank);
  memory.beganAt = order_.time(firstLane) - 1;  // the join of the lanes; see HappensBefore::join
  memory.peers.assign(order_.enabled() ? order_.lanes() : 0, Epoch{});
  const size_t cells = userIndex(schedule, 0, options_.slices);
  memory.input.assign(cells, Cell{});
  memory.output.assign(cells, Cell{});
  for (Half& half : memory.own) half.cells.assign(static_cast<size_t>(schedule.scratchSegments), Cell{});
  std::vector<Cell>& input = options_.inPlace ? memory.output : memory.input;
  for (int32_t segment = 0; segment < schedule.segments(); ++segment) {
    if (!exists(schedule, {Buffer::input, schedule.rank, segment})) continue;
    for (int32_t slice = 0; slice < options_.slices; ++slice)
      input[userIndex(schedule, segment, slice)].value = {
          segment, schedule.rank, call, slice, isReduction(schedule.collective), false};
  }
}

Status SymbolicMemory::endCall(int32_t rank) {
  RankMemory& memory = ranks_[static_cast<size_t>(rank)];
  const auto lane = static_cast<size_t>(rank * options_.lanesPerRank);
  for (const Epoch& access : memory.peers) {
    if (!access.happened() || order_.ordered(access, lane)) continue;
    return internalError(
        "rank {} may return from call {} while rank {} still uses its buffers (lane {}: \"{}\"): a barrier "
        "is missing",
        rank, memory.call, access.lane / options_.lanesPerRank, access.lane % options_.lanesPerRank,
        toText(*access.step));
  }
  memory.call = -1;
  return Status::ok();
}

const Value& SymbolicMemory::output(int32_t rank, int32_t segment, int32_t slice) const {
  const RankMemory& memory = ranks_[static_cast<size_t>(rank)];
  return memory.output[userIndex(*memory.schedule, segment, slice)].value;
}

bool SymbolicMemory::same(const Place& a, const Place& b) const {
  if (a.owner != b.owner || a.segment != b.segment) return false;
  if (a.buffer == b.buffer) return true;
  return options_.inPlace && a.buffer != Buffer::scratch && b.buffer != Buffer::scratch;
}

Status SymbolicMemory::race(const char* what, const Place& place, const Epoch& other) const {
  return internalError("race: {} {} is not ordered after rank {} lane {} \"{}\"", what, toText(place),
                       other.lane / options_.lanesPerRank, other.lane % options_.lanesPerRank,
                       toText(*other.step));
}

Status SymbolicMemory::findUser(const Accessor& who, const Place& place, Cell** cell) {
  RankMemory& memory = ranks_[static_cast<size_t>(place.owner)];
  const Schedule& mine = *ranks_[static_cast<size_t>(who.rank)].schedule;
  if (place.owner != who.rank) {
    if (!mine.sharedUserBuffers)
      return internalError("{} is used, but the schedule does not declare sharedUserBuffers", toText(place));
    if (memory.schedule != nullptr && !memory.schedule->sharedUserBuffers)
      return internalError("{} is used, but its owner's schedule does not declare sharedUserBuffers",
                           toText(place));
    if (memory.call != who.call)
      return internalError("race: {} is used in call {} while its owner is not in that call", toText(place),
                           who.call);
    const auto ownersLane = static_cast<size_t>(place.owner * options_.lanesPerRank);
    if (!order_.seen(who.lane, ownersLane, memory.beganAt))
      return internalError("race: {} is used, but nothing says that its owner has begun the call",
                           toText(place));
    if (order_.enabled()) memory.peers[who.lane] = order_.now(who.lane, who.step);
  }
  std::vector<Cell>& cells =
      options_.inPlace || place.buffer == Buffer::output ? memory.output : memory.input;
  *cell = &cells[userIndex(mine, place.segment, who.slice)];
  return Status::ok();
}

Status SymbolicMemory::checkHalf(const Accessor& who, const Place& place, bool write, Half& half) {
  if (!order_.enabled()) return Status::ok();
  const auto call = static_cast<size_t>(who.call);
  while (half.uses.size() <= call)
    half.uses.push_back({std::vector<Epoch>(order_.lanes()), std::vector<Epoch>(order_.lanes()),
                         std::vector<bool>(order_.lanes() * 2)});
  HalfUse& use = half.uses[call];
  if (half.uses.size() > call + 1)
    return internalError("race: {} is used in call {} when a later call already uses that half",
                         toText(place), who.call);
  // The calls before do not change any more unless they are late, which the test above reports.
  const size_t memo = who.lane * 2 + (write ? 1 : 0);
  if (!use.checkedAgainstEarlier[memo]) {
    use.checkedAgainstEarlier[memo] = true;
    for (size_t earlier = 0; earlier < call; ++earlier)
      for (const auto* accesses : {&half.uses[earlier].writes, &half.uses[earlier].reads}) {
        if (accesses == &half.uses[earlier].reads && !write) continue;
        for (const Epoch& access : *accesses)
          if (access.happened() && !order_.ordered(access, who.lane))
            return race(write ? "writing" : "reading", place, access)
                .withContext("call {} against call {}", who.call, earlier);
      }
  }
  (write ? use.writes : use.reads)[who.lane] = order_.now(who.lane, who.step);
  return Status::ok();
}

Status SymbolicMemory::findScratch(const Accessor& who, const Place& place, bool write, Cell** cell) {
  RankMemory& owner = ranks_[static_cast<size_t>(place.owner)];
  const RankMemory& mine = ranks_[static_cast<size_t>(who.rank)];
  if (!mine.schedule->sharedScratch) {
    if (place.owner != who.rank)
      return internalError("{} is used, but the schedule does not declare sharedScratch", toText(place));
    Half& half = owner.own[static_cast<size_t>(who.slice % options_.scratchHalves)];
    *cell = &half.cells[static_cast<size_t>(place.segment)];
    return Status::ok();
  }
  Half& half = owner.shared[static_cast<size_t>((mine.sharedRuns + who.slice) % options_.scratchHalves)];
  TUTTI_TRY(checkHalf(who, place, write, half));
  if (half.call < who.call) {
    half.call = who.call;
    half.cells.assign(static_cast<size_t>(mine.schedule->scratchSegments), Cell{});
  }
  *cell = &half.cells[static_cast<size_t>(place.segment)];
  return Status::ok();
}

Status SymbolicMemory::find(const Accessor& who, const Place& place, bool write, Cell** cell) {
  const Schedule& mine = *ranks_[static_cast<size_t>(who.rank)].schedule;
  if (!exists(mine, place)) return internalError("there is no {}", toText(place));
  if (place.buffer == Buffer::scratch) {
    TUTTI_TRY(findScratch(who, place, write, cell));
  } else {
    TUTTI_TRY(findUser(who, place, cell));
  }
  return checkOrder(who, place, write, **cell);
}

Status SymbolicMemory::checkOrder(const Accessor& who, const Place& place, bool write, Cell& cell) {
  const Epoch now = order_.now(who.lane, who.step);
  const auto conflict = write ? cell.log.write(order_, now) : cell.log.read(order_, now);
  if (conflict) return race(write ? "writing" : "reading", place, *conflict);
  return Status::ok();
}

Status SymbolicMemory::load(const Accessor& who, const Place& place, Value* value) {
  Cell* cell = nullptr;
  TUTTI_TRY(find(who, place, false, &cell));
  *value = cell->value;
  if (!value->written()) return internalError("{} is read before anything was written to it", toText(place));
  if (value->call != who.call || value->slice != who.slice)
    return internalError("{} still holds data of call {} slice {}", toText(place), value->call, value->slice);
  const bool reduces = isReduction(ranks_[static_cast<size_t>(who.rank)].schedule->collective);
  if (place.buffer == Buffer::input && reduces && !value->raw)
    return internalError("{} is read as input, but a result has replaced it (in place)", toText(place));
  if (place.buffer != Buffer::input && value->raw)
    return internalError("{} is read, but holds the raw input (in place), which was not scaled yet",
                         toText(place));
  value->raw = false;
  return Status::ok();
}

Status SymbolicMemory::store(const Accessor& who, const Place& place, const Value& value) {
  if (place.buffer == Buffer::input)
    return internalError("{} is written, but inputs are read-only", toText(place));
  Cell* cell = nullptr;
  TUTTI_TRY(find(who, place, true, &cell));
  cell->value = value;
  return Status::ok();
}

}  // namespace tutti
