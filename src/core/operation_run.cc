#include "core/operation_run.h"

#include <algorithm>

#include "base/datatype.h"
#include "core/communicator.h"
#include "core/position.h"

namespace tutti {
namespace {

// Bits of a fingerprint, from the top: kind of call, type, operator, root, count (the low bits are what
// differs most). What has no root may have a count for each rank: then a digest of those is in its place.
constexpr int kCountBits = 36;
constexpr int kRootBits = 16;
constexpr uint64_t kRootMask = (uint64_t{1} << kRootBits) - 1;
constexpr uint64_t kCountMask = (uint64_t{1} << kCountBits) - 1;
constexpr auto kMapDeadline = std::chrono::seconds(30);

/// True when every rank of this host can reach the buffer: those of other processes need a memory file.
bool mappableByPeers(const Endpoint& endpoint, const BufferDescriptor& buffer) {
  if (buffer.address == 0) return false;  // direct access is switched off
  if (buffer.fileId != 0) return true;
  const auto& local = endpoint.localRanks();
  return std::all_of(local.begin(), local.end(), [&](int rank) { return endpoint.sameProcess(rank); });
}

}  // namespace

uint64_t fingerprint(const Operation& operation) {
  const auto collective = static_cast<uint64_t>(operation.collective);
  const auto type = static_cast<uint64_t>(operation.type);
  const auto op = static_cast<uint64_t>(operation.reduction.spec.op);
  uint64_t root = static_cast<uint64_t>(operation.root) & kRootMask;
  if (operation.blocks != nullptr) {
    const uint64_t counts = CallName::of(operation).blocks;
    root = (counts ^ counts >> 16 ^ counts >> 32 ^ counts >> 48) & kRootMask;
  }
  return collective << 60 | type << 56 | op << 52 | root << kCountBits | (operation.count & kCountMask);
}

std::string describeFingerprint(uint64_t value) {
  static constexpr const char* kOps[] = {"sum", "prod", "max", "min"};
  const auto op = (value >> 52) & 0xf;
  const auto collective = static_cast<Collective>(value >> 60);
  const uint64_t root = (value >> kCountBits) & kRootMask;
  const std::string where = hasRoot(collective) ? fmt::format("root {}", root)
                            : root != 0         ? fmt::format("counts {:04x}", root)
                                                : std::string("root 0");
  return fmt::format("{} of {} x {} ({}, {})", name(collective), value & kCountMask,
                     nameOf(static_cast<ncclDataType_t>((value >> 56) & 0xf)), op < 4 ? kOps[op] : "?",
                     where);
}

Status OperationRun::begin(Communicator& communicator, const Operation& operation) {
  communicator_ = &communicator;
  operation_ = operation;
  status_ = Status::ok();
  if (operation_.reduction.residentScalar != nullptr) {
    readScalar(operation_.reduction.residentScalar, operation_.reduction.spec);
  }
  TUTTI_ASSIGN(const bool zeroCopy, communicator.planner().wantsZeroCopy(operation_));
  if (zeroCopy) {
    bool fromFile = false;
    if (operation_.blocks != nullptr) {
      TUTTI_ASSIGN(const Plan plan, communicator.planner().plan(operation_, true));
      fromFile = plan.choice.algorithm->shipped == nullptr;
    }
    postBoard(fromFile);
    phase_ = Phase::negotiating;
    return Status::ok();
  }
  return launch(false);
}

/// `fromFile`: the algorithm that would use the buffers is none of the shipped ones.
void OperationRun::postBoard(bool fromFile) {
  Endpoint& endpoint = communicator_->endpoint();
  const SegmentTable table(CallShape{.collective = operation_.collective,
                                     .ranks = communicator_->ranks(),
                                     .root = operation_.root,
                                     .count = operation_.count,
                                     .elementBytes = sizeOf(operation_.type),
                                     .blocks = operation_.blocks});
  const size_t inputBytes = table.bufferBytes(Buffer::input, endpoint.rank());
  const size_t outputBytes = table.bufferBytes(Buffer::output, endpoint.rank());
  mine_ = BoardEntry{};
  mine_.call = fingerprint(operation_);
  // A buffer that this call does not have on this rank needs no mapping.
  if (inputBytes != 0) mine_.input = endpoint.describe(operation_.input, inputBytes);
  if (outputBytes != 0) mine_.output = endpoint.describe(operation_.output, outputBytes);
  const bool inputUsable = inputBytes == 0 || mappableByPeers(endpoint, mine_.input);
  const bool outputUsable = outputBytes == 0 || mappableByPeers(endpoint, mine_.output);
  // In place, an AllToAll would overwrite what peers have yet to read.
  const bool overwrites =
      operation_.collective == Collective::allToAll && operation_.input == operation_.output;
  // Peers find the blocks of this rank's input where a table without gaps puts them. Shipped algorithms leave
  // others' outputs of an AllGather alone; one from a file may not.
  const bool usesBlocks = operation_.collective == Collective::reduceScatter || fromFile;
  const bool hasGaps = usesBlocks && operation_.blocks != nullptr && !operation_.blocks->contiguous();
  mine_.usable = inputUsable && outputUsable && !overwrites && !hasGaps ? 1 : 0;
  negotiation_ = communicator_->nextNegotiation();
  endpoint.post(negotiation_, mine_);
}

Status OperationRun::checkFingerprint(int rank, uint64_t theirs) const {
  if (theirs == mine_.call) return Status::ok();
  return invalidUsage("the ranks' calls do not match: rank {} called {}, but rank {} called {}",
                      communicator_->rank(), describeFingerprint(mine_.call), rank,
                      describeFingerprint(theirs));
}

HostRun::State OperationRun::advanceNegotiation() {
  Endpoint& endpoint = communicator_->endpoint();
  bool usable = true;
  for (const int rank : endpoint.localRanks()) {
    const BoardEntry* entry = endpoint.read(rank, negotiation_);
    if (entry == nullptr) return HostRun::State::waiting;
    usable = usable && entry->usable != 0;
  }
  for (const int rank : endpoint.localRanks()) {
    status_ = checkFingerprint(rank, endpoint.read(rank, negotiation_)->call);
    if (!status_.isOk()) return HostRun::State::failed;
  }
  if (usable) status_ = mapPeers();
  if (status_.isOk()) status_ = launch(usable);
  return status_.isOk() ? HostRun::State::progressed : HostRun::State::failed;
}

Status OperationRun::mapPeers() {
  Endpoint& endpoint = communicator_->endpoint();
  TUTTI_ASSIGN(const Plan plan, communicator_->planner().plan(operation_, true));
  const auto self = static_cast<size_t>(endpoint.rank());
  peerInput_.assign(static_cast<size_t>(endpoint.ranks()), nullptr);
  peerOutput_.assign(static_cast<size_t>(endpoint.ranks()), nullptr);
  peerInput_[self] = static_cast<std::byte*>(const_cast<void*>(operation_.input));  // only ever read
  peerOutput_[self] = static_cast<std::byte*>(operation_.output);
  for (const PeerBuffer& needed : plan.peerBuffers) {
    const BoardEntry& entry = *endpoint.read(needed.rank, negotiation_);
    const bool isInput = needed.buffer == Buffer::input;
    std::vector<std::byte*>& addresses = isInput ? peerInput_ : peerOutput_;
    TUTTI_ASSIGN(addresses[static_cast<size_t>(needed.rank)],
                 endpoint.mapPeerBuffer(needed.rank, isInput ? entry.input : entry.output,
                                        Deadline::after(kMapDeadline)));
  }
  return Status::ok();
}

Launch makeLaunch(const Communicator& communicator, const Operation& operation, const Plan& plan,
                  int channel) {
  Launch launch;
  launch.schedule = plan.schedule;
  launch.shape = CallShape{.collective = operation.collective,
                           .ranks = communicator.ranks(),
                           .root = plan.schedule->root,
                           .parts = plan.schedule->parts,
                           .count = operation.count,
                           .elementBytes = sizeOf(operation.type),
                           .channel = channel,
                           .channels = plan.channels,
                           .sliceBytes = plan.sliceBytes,
                           .blocks = operation.blocks};
  launch.reduction = operation.reduction.spec;
  launch.input = operation.input;
  launch.output = operation.output;
  launch.channel = channel;
  return launch;
}

Status OperationRun::launch(bool zeroCopy) {
  TUTTI_ASSIGN(const Plan plan, communicator_->planner().plan(operation_, zeroCopy));
  communicator_->planner().noteUsed(plan);
  launches_.resize(static_cast<size_t>(plan.channels));
  for (int channel = 0; channel < plan.channels; ++channel) {
    Launch& launch = launches_[static_cast<size_t>(channel)];
    launch = makeLaunch(*communicator_, operation_, plan, channel);
    if (!zeroCopy) continue;
    launch.peerInput = peerInput_;
    launch.peerOutput = peerOutput_;
  }
  TUTTI_ASSIGN(run_, communicator_->executor().start(launches_));
  phase_ = Phase::running;
  return Status::ok();
}

HostRun::State OperationRun::advance(size_t byteBudget) {
  if (phase_ == Phase::negotiating) return advanceNegotiation();
  const HostRun::State state = run_->advance(byteBudget);
  if (state == HostRun::State::failed) status_ = run_->status();
  if (state == HostRun::State::done) run_.reset();
  return state;
}

void OperationRun::waits(std::vector<WaitFor>* found) const {
  if (run_ != nullptr) return appendWaits(*run_, found);
  if (phase_ != Phase::negotiating) return;
  const Endpoint& endpoint = communicator_->endpoint();
  for (const int rank : endpoint.localRanks())
    if (endpoint.read(rank, negotiation_) == nullptr)
      found->push_back({.peer = rank, .what = WaitFor::What::call});
}

void appendWaits(const HostRun& run, std::vector<WaitFor>* found) {
  constexpr size_t kMost = 8;
  std::vector<HostRun::Wait> waits;
  run.waits(&waits, kMost);
  for (const HostRun::Wait& wait : waits) {
    const auto what = wait.what == HostRun::Wait::For::data   ? WaitFor::What::data
                      : wait.what == HostRun::Wait::For::room ? WaitFor::What::room
                                                              : WaitFor::What::signal;
    found->push_back({wait.peer, what, wait.step, wait.steps, wait.slice, wait.slices});
  }
}

std::string OperationRun::position() const {
  if (phase_ == Phase::negotiating) {
    return fmt::format("{}: waiting for the other ranks of this host to call", name(operation_.collective));
  }
  return run_ != nullptr ? run_->position() : "between operations";
}

}  // namespace tutti
