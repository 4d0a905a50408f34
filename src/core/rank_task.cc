#include "core/rank_task.h"

#include <algorithm>

#include "core/communicator.h"

namespace tutti {

void RankTask::assign(uint64_t ticket, std::span<const Operation> operations) {
  ticket_ = ticket;
  status_ = Status::ok();
  finished.store(0, std::memory_order_relaxed);
  strandsUsed_ = 0;
  otherStreams_.clear();
  stream_ = operations.front().stream;
  for (const Operation& operation : operations) {
    strandFor(operation).operations.push_back(operation);
    if (operation.stream != stream_ &&
        std::find(otherStreams_.begin(), otherStreams_.end(), operation.stream) == otherStreams_.end()) {
      otherStreams_.push_back(operation.stream);
    }
  }
}

RankTask::Strand& RankTask::strandFor(const Operation& operation) {
  const int peer = operation.kind == Operation::Kind::collective ? -1 : operation.root;
  for (size_t i = 0; i < strandsUsed_; ++i) {
    if (strands_[i]->kind == operation.kind && strands_[i]->peer == peer) return *strands_[i];
  }
  if (strandsUsed_ == strands_.size()) strands_.push_back(std::make_unique<Strand>());
  Strand& strand = *strands_[strandsUsed_++];
  strand.peer = peer;
  strand.kind = operation.kind;
  strand.operations.clear();
  strand.next = 0;
  strand.running = false;
  return strand;
}

HostRun::State RankTask::advanceStrand(Strand& strand) {
  bool progressed = false;
  while (strand.next < strand.operations.size()) {
    const Operation& operation = strand.operations[strand.next];
    if (!strand.running) {
      status_ = strand.run.begin(communicator_, operation);
      if (!status_.isOk()) return State::failed;
      strand.running = true;
    }
    switch (strand.run.advance()) {
      case State::done:
        strand.running = false;
        ++strand.next;
        progressed = true;
        break;
      case State::progressed: return State::progressed;
      case State::waiting: return progressed ? State::progressed : State::waiting;
      case State::failed: status_ = strand.run.status(); return State::failed;
    }
  }
  return State::done;
}

HostRun::State RankTask::advance() {
  bool allDone = true;
  bool progressed = false;
  for (size_t i = 0; i < strandsUsed_; ++i) {
    Strand& strand = *strands_[i];
    if (strand.next == strand.operations.size()) continue;
    const State state = advanceStrand(strand);
    if (state == State::failed) return state;
    if (state != State::done) allDone = false;
    if (state != State::waiting) progressed = true;
  }
  if (allDone) return communicator_.endpoint().flushed() ? State::done : State::waiting;
  return progressed ? State::progressed : State::waiting;
}

std::string RankTask::position() const {
  std::string text;
  for (size_t i = 0; i < strandsUsed_; ++i) {
    const Strand& strand = *strands_[i];
    if (strand.next == strand.operations.size()) continue;
    if (!text.empty()) text += "; ";
    text += strand.running ? strand.run.position() : "not started";
  }
  return text.empty() ? "done" : text;
}

void RankTask::runToEnd() {
  TaskQueue& queue = communicator_.tasks();
  Status status = queue.waitForTurn(*this, communicator_.faults());
  if (status.isOk()) status = finishRun(communicator_.endpoint(), *this, communicator_.faults());
  if (!status.isOk()) status_ = status;
  complete();
}

void RankTask::complete() {
  if (!status_.isOk()) communicator_.fail(status_);
  communicator_.tasks().finish(*this);
  finished.store(1, std::memory_order_release);
  finished.notify_all();
}

}  // namespace tutti
