#include "algorithms/msccl_import.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "algorithms/proof_size.h"
#include "algorithms/symbolic/machine.h"

namespace tutti {
namespace {

using Type = MscclStep::Type;

/// A piece of the GPU's memory by the file's names, after i and o have become one where they are.
struct Chunk {
  char buffer;
  int32_t number;  // i and o: segment of the collective; s: chunk of scratch
  friend auto operator<=>(const Chunk&, const Chunk&) = default;
};

/// Where a chunk of i lives, and until when its contribution is read from the input.
struct Home {
  Location place;
  bool copiedAtStart = false;
  int32_t lane = -1;     // the first that writes it; it copies
  bool written = false;  // by the steps translated so far
};

/// One rank's translation.
class Translator {
 public:
  Translator(const MscclProgram& program, int32_t rank, bool orderScratch)
      : program_(program),
        gpu_(program.gpus[static_cast<size_t>(rank)]),
        rank_(rank),
        orderScratch_(orderScratch),
        oneBuffer_(program.inPlace && !program.outOfPlace) {
    schedule_.name = program.name;
    schedule_.collective = program.collective;
    schedule_.ranks = program.ranks();
    schedule_.rank = rank;
    schedule_.parts = program.parts();
    schedule_.scratchSegments = gpu_.scratchChunks;
  }

  Result<Schedule> translate() {
    findUses();
    findHomes();
    findDependencies();
    if (flagCount() > kMaxFlags)
      return invalidUsage("{}: GPU {} needs {} flags between its thread blocks; there are {}", program_.file,
                          rank_, flagCount(), kMaxFlags);
    schedule_.flags = static_cast<int16_t>(flagCount());
    for (size_t block = 0; block < gpu_.blocks.size(); ++block) emitLane(static_cast<int32_t>(block));
    return schedule_;  // with empty lanes, which tidy() removes
  }

 private:
  struct Use {
    std::set<int32_t> lanes;
    std::set<int32_t> writers;
  };

  int32_t flagCount() const { return static_cast<int32_t>(flags_.size() + turnFlags_.size()); }

  Chunk chunk(char buffer, int32_t offset) const {
    const int32_t own = rank_ * program_.parts();
    if (buffer == 's') return {'s', offset};
    const bool ownBlockOnly = (buffer == 'i' && program_.collective == Collective::allGather) ||
                              (buffer == 'o' && program_.collective == Collective::reduceScatter);
    const int32_t segment = offset + (ownBlockOnly ? own : 0);
    if (oneBuffer_ && hasInput(segment)) return {'i', segment};  // i and o name the same memory
    return {buffer, segment};
  }

  bool hasInput(int32_t segment) const {
    return SymbolicMemory::exists(schedule_, {Buffer::input, rank_, segment});
  }
  bool hasOutput(int32_t segment) const {
    return SymbolicMemory::exists(schedule_, {Buffer::output, rank_, segment});
  }

  template <typename Visit>
  void forEachAccess(Visit visit) const {
    for (size_t b = 0; b < gpu_.blocks.size(); ++b)
      for (const MscclStep& step : gpu_.blocks[b].steps)
        for (int32_t k = 0; k < step.count; ++k) {
          const auto lane = static_cast<int32_t>(b);
          if (readsMemory(step.type)) visit(lane, chunk(step.srcBuffer, step.srcOffset + k), false);
          if (writesMemory(step.type)) visit(lane, chunk(step.dstBuffer, step.dstOffset + k), true);
        }
  }

  void findUses() {
    forEachAccess([&](int32_t lane, const Chunk& c, bool write) {
      Use& use = uses_[c];
      use.lanes.insert(lane);
      if (write) use.writers.insert(lane);
    });
  }

  void findHomes() {
    for (const auto& [c, use] : uses_) {
      if (c.buffer != 'i' || use.writers.empty()) continue;
      Home& home = homes_[c.number];
      if (oneBuffer_ && hasOutput(c.number)) {
        home.place = {Buffer::output, c.number};
      } else {
        home.place = {Buffer::scratch, schedule_.scratchSegments++};
      }
      home.copiedAtStart = use.lanes.size() > 1;
      home.lane = *use.writers.begin();
    }
    // What nobody writes is in place already; out of place it must still get there.
    if (!oneBuffer_) return;
    for (int32_t segment = 0; segment < schedule_.segments(); ++segment)
      if (hasInput(segment) && hasOutput(segment) && !homes_.contains(segment)) untouched_.push_back(segment);
  }

  /// Flags between lanes: who must have got how far before whom. The copies at a lane's start are its step
  /// -1.
  void findDependencies() {
    std::map<std::pair<int32_t, int32_t>, int32_t> seen;  // (from, to): last step waited for
    for (size_t b = 0; b < gpu_.blocks.size(); ++b) {
      const auto to = static_cast<int32_t>(b);
      const MscclBlock& block = gpu_.blocks[b];
      for (size_t s = 0; s < block.steps.size(); ++s) {
        const MscclStep& step = block.steps[s];
        if (step.dependsOnBlock >= 0)
          need(seen, step.dependsOnBlock, step.dependsOnStep, to, static_cast<int32_t>(s));
        for (const int32_t copier : copiersOf(step))
          if (copier != to) need(seen, copier, -1, to, static_cast<int32_t>(s));
      }
    }
    for (const auto& [key, raises] : signals_)
      for (const int32_t to : raises)
        flags_.emplace(std::pair(key.first, to), static_cast<int32_t>(flags_.size()));
    if (!orderScratch_) return;
    for (const auto& [c, use] : uses_) {
      if (use.writers.empty() || !inScratch(c)) continue;
      for (const int32_t a : use.lanes)
        for (const int32_t b : use.lanes)
          if (a != b) turnFlags_.emplace(std::pair(a, b), 0);
    }
    int32_t number = static_cast<int32_t>(flags_.size());
    for (auto& [pair, flag] : turnFlags_) flag = number++;
  }

  void need(std::map<std::pair<int32_t, int32_t>, int32_t>& seen, int32_t from, int32_t fromStep, int32_t to,
            int32_t toStep) {
    const auto [at, isNew] = seen.emplace(std::pair(from, to), fromStep);
    if (!isNew && at->second >= fromStep) return;  // waited for already
    at->second = fromStep;
    signals_[{from, fromStep}].insert(to);
    waits_[{to, toStep}].push_back(from);
  }

  /// The lanes that copied, at their start, what the step uses.
  std::set<int32_t> copiersOf(const MscclStep& step) const {
    std::set<int32_t> lanes;
    const auto add = [&](const Chunk& c) {
      const auto home = homes_.find(c.number);
      if (c.buffer == 'i' && home != homes_.end() && home->second.copiedAtStart)
        lanes.insert(home->second.lane);
    };
    for (int32_t k = 0; k < step.count; ++k) {
      if (readsMemory(step.type)) add(chunk(step.srcBuffer, step.srcOffset + k));
      if (writesMemory(step.type)) add(chunk(step.dstBuffer, step.dstOffset + k));
    }
    return lanes;
  }

  bool inScratch(const Chunk& c) const {
    if (c.buffer != 'i') return c.buffer == 's';
    const auto home = homes_.find(c.number);
    return home != homes_.end() && home->second.place.buffer == Buffer::scratch;
  }

  Location source(const Chunk& c) const {
    if (c.buffer == 's') return {Buffer::scratch, c.number};
    if (c.buffer == 'o') return {Buffer::output, c.number};
    const auto home = homes_.find(c.number);
    if (home == homes_.end() || !(home->second.copiedAtStart || home->second.written))
      return {Buffer::input, c.number};
    return home->second.place;
  }

  Location target(const Chunk& c) {
    if (c.buffer == 's') return {Buffer::scratch, c.number};
    if (c.buffer == 'o') return {Buffer::output, c.number};
    Home& home = homes_.at(c.number);
    home.written = true;
    return home.place;
  }

  void emitLane(int32_t block) {
    Lane& lane = schedule_.lanes.emplace_back();
    const MscclBlock& source = gpu_.blocks[static_cast<size_t>(block)];
    for (const auto& [pair, flag] : turnFlags_)
      if (pair.first == block) lane.signal(rank_, flag);
    for (const auto& [segment, home] : homes_)
      if (home.copiedAtStart && home.lane == block) lane.copy({Buffer::input, segment}, home.place);
    emitSignals(lane, block, -1);
    for (size_t s = 0; s < source.steps.size(); ++s) {
      const auto step = static_cast<int32_t>(s);
      if (const auto found = waits_.find({block, step}); found != waits_.end())
        for (const int32_t from : found->second) lane.wait(rank_, flags_.at({from, block}));
      for (int32_t k = 0; k < source.steps[s].count; ++k) emitStep(lane, source, source.steps[s], k);
      emitSignals(lane, block, step);
    }
    if (block == 0)
      for (const int32_t segment : untouched_) lane.copy({Buffer::input, segment}, {Buffer::output, segment});
    for (const auto& [pair, flag] : turnFlags_)
      if (pair.second == block) lane.wait(rank_, flag);
  }

  void emitSignals(Lane& lane, int32_t block, int32_t step) {
    const auto found = signals_.find({block, step});
    if (found == signals_.end()) return;
    for (const int32_t to : found->second) lane.signal(rank_, flags_.at({block, to}));
  }

  void emitStep(Lane& lane, const MscclBlock& block, const MscclStep& step, int32_t k) {
    const int32_t from = block.recvPeer;
    const int32_t to = block.sendPeer;
    const int32_t port = block.channel;
    Location src;
    Location dst;
    if (readsMemory(step.type)) src = source(chunk(step.srcBuffer, step.srcOffset + k));
    // A local reduction reads its destination too: as input up to the first write, so it needs the home
    // filled.
    const Location reducedInto =
        step.type == Type::re ? source(chunk(step.dstBuffer, step.dstOffset + k)) : Location{};
    if (writesMemory(step.type)) dst = target(chunk(step.dstBuffer, step.dstOffset + k));
    switch (step.type) {
      case Type::s:
        lane.send(to, src, port);
        break;
      case Type::r:
        lane.recv(from, dst, port);
        break;
      case Type::rcs:
        lane.recvCopySend(from, dst, to, port, port);
        break;
      case Type::rrs:
        lane.recvReduceSend(from, src, to, port, port).messageFirst = from < rank_;
        break;
      case Type::rrc:
        lane.recvReduce(from, src, dst, port).messageFirst = from < rank_;
        break;
      case Type::rrcs:
        lane.recvReduceCopySend(from, src, dst, to, port, port).messageFirst = from < rank_;
        break;
      case Type::cpy:
        lane.copy(src, dst);
        break;
      case Type::re:
        if (reducedInto != dst) lane.copy(reducedInto, dst);
        lane.reduceLocal(src, dst);
        break;
      case Type::nop:
        break;
    }
  }

  const MscclProgram& program_;
  const MscclGpu& gpu_;
  int32_t rank_;
  bool orderScratch_;
  bool oneBuffer_;
  Schedule schedule_;
  std::map<Chunk, Use> uses_;
  std::map<int32_t, Home> homes_;
  std::vector<int32_t> untouched_;
  std::map<std::pair<int32_t, int32_t>, std::set<int32_t>> signals_;   // (lane, step): lanes to tell
  std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> waits_;  // (lane, step): lanes to wait for
  std::map<std::pair<int32_t, int32_t>, int32_t> flags_;               // (from, to): flag
  std::map<std::pair<int32_t, int32_t>, int32_t> turnFlags_;           // (from, to): flag
};

/// Finds sizes of scratch and final reductions by running the schedules once.
Status infer(ScheduleSet& schedules) {
  SymbolicMachine machine({&schedules}, {.slices = 1, .infer = true});
  TUTTI_TRY(machine.run());
  for (Schedule& schedule : schedules)
    for (Lane& lane : schedule.lanes)
      for (Block& block : lane.blocks)
        for (Step& step : block.steps) {
          const auto found = machine.inferred().find(&step);
          if (found == machine.inferred().end()) continue;
          if (found->second.sizeAs != kNoSegment) step.sizeAs = found->second.sizeAs;
          step.finalize = found->second.finalize;
        }
  return Status::ok();
}

Result<ScheduleSet> translateAll(const MscclProgram& program, bool orderScratch) {
  ScheduleSet set;
  int32_t scratch = 0;
  for (int32_t rank = 0; rank < program.ranks(); ++rank) {
    TUTTI_ASSIGN(Schedule schedule, Translator(program, rank, orderScratch).translate());
    scratch = std::max(scratch, schedule.scratchSegments);
    set.push_back(tidy(std::move(schedule)));
  }
  for (Schedule& schedule : set) schedule.scratchSegments = scratch;
  if (const Status inferred = infer(set); !inferred.isOk())
    return invalidUsage("{}: not a right {}: {}", program.file, name(program.collective), inferred.message());
  return set;
}

/// The translation and the proof stay small, whatever numbers the file holds.
Status checkSize(const MscclProgram& program) {
  ProofSize size;
  for (const MscclGpu& gpu : program.gpus) {
    size.cells += 2 * static_cast<int64_t>(program.chunks) + gpu.scratchChunks;  // inputs may move to scratch
    size.lanes = std::max(size.lanes, static_cast<int64_t>(gpu.blocks.size() * program.gpus.size()));
    for (const MscclBlock& block : gpu.blocks)
      for (const MscclStep& step : block.steps) size.moves += step.count;
  }
  return checkProofSize(size).withContext("{}", program.file);
}

}  // namespace

Status proveKinds(ImportedAlgorithm& algorithm, std::optional<bool> inPlace, std::optional<bool> outOfPlace) {
  algorithm.inPlace = algorithm.outOfPlace = false;
  const ScheduleSet* calls[] = {&algorithm.schedules, &algorithm.schedules};
  Status why;
  // An AlltoAll that lets peers read the users' inputs cannot keep them while outputs come in.
  const bool never = algorithm.collective == Collective::allToAll &&
                     std::ranges::any_of(algorithm.schedules, &Schedule::sharedUserBuffers);
  const auto tryKind = [&](bool place, const std::optional<bool>& promised, bool* holds) {
    if (promised == false || (place && never && !promised)) return Status::ok();
    auto proof = check(calls, {.inPlace = place});
    *holds = proof.isOk();
    if (*holds) {
      algorithm.certificate = *proof;
      return Status::ok();
    }
    const Status failed = proof.status().withContext("{}", place ? "in place" : "out of place");
    if (why.isOk()) why = failed;
    return promised == true ? failed : Status::ok();
  };
  TUTTI_TRY(tryKind(false, outOfPlace, &algorithm.outOfPlace));
  TUTTI_TRY(tryKind(true, inPlace, &algorithm.inPlace));
  return algorithm.inPlace || algorithm.outOfPlace ? Status::ok() : why;
}

Result<ImportedAlgorithm> importMscclProgram(const MscclProgram& program) {
  TUTTI_TRY(checkSize(program));
  ImportedAlgorithm imported;
  imported.name = program.name;
  imported.file = program.file;
  imported.collective = program.collective;
  imported.minBytes = program.minBytes;
  imported.maxBytes = program.maxBytes;
  TUTTI_ASSIGN(imported.schedules, translateAll(program, false));
  const Status plain = proveKinds(imported);
  if (plain.isOk()) return imported;
  // Perhaps lanes only need to wait for each other before they reuse scratch.
  auto ordered = translateAll(program, true);
  if (ordered.isOk()) {
    imported.schedules = std::move(ordered).value();
    if (proveKinds(imported).isOk()) return imported;
  }
  return Status(ncclInvalidUsage,
                plain.withContext("{}: not a right {}", program.file, name(program.collective)).message());
}

Result<ImportedAlgorithm> importMscclXml(std::string_view text, std::string_view fileName) {
  TUTTI_ASSIGN(const MscclProgram program, parseMscclXml(text, fileName));
  return importMscclProgram(program);
}

}  // namespace tutti
