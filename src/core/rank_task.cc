#include "core/rank_task.h"

#include <algorithm>

#include "core/communicator.h"
#include "core/self_messages.h"

namespace tutti {

void RankTask::assign(uint64_t ticket, uint64_t firstCollective, std::span<const Operation> operations) {
  ticket_ = ticket;
  firstCollective_ = firstCollective;
  collectiveChecking_ = false;
  messagesBegun_ = false;
  status_ = Status::ok();
  finished.store(0, std::memory_order_relaxed);
  stream_ = operations.front().stream;
  otherStreams_.clear();
  collectives_.clear();
  nextCollective_ = 0;
  collectiveRunning_ = false;
  messages_.clear();
  for (const Operation& operation : operations) {
    (operation.kind == Operation::Kind::collective ? collectives_ : messages_).push_back(operation);
    if (operation.stream != stream_ &&
        std::find(otherStreams_.begin(), otherStreams_.end(), operation.stream) == otherStreams_.end()) {
      otherStreams_.push_back(operation.stream);
    }
  }
  pairSelfMessages(communicator_.rank(), messages_);
  messagesDone_ = messages_.empty();
}

RankTask::State RankTask::fail(Status status) {
  status_ = std::move(status);
  return State::failed;
}

/// Done: the collective has been compared, where calls are, and runs (or has nothing to move).
RankTask::State RankTask::beginCollective() {
  const Operation& operation = collectives_[nextCollective_];
  const uint64_t number = firstCollective_ + nextCollective_;
  if (!collectiveChecking_) communicator_.monitor().progress.begin(operation, number, 0);
  if (communicator_.checksCalls()) {
    if (!collectiveChecking_) collectiveCheck_.begin(communicator_, operation, number);
    collectiveChecking_ = true;
    const State state = collectiveCheck_.advance();
    if (state == State::failed) return fail(collectiveCheck_.status());
    if (state != State::done) return state;
    collectiveChecking_ = false;
    if (operation.count == 0) return State::done;
  }
  if (Status begun = collectiveRun_.begin(communicator_, operation); !begun.isOk())
    return fail(std::move(begun));
  collectiveRunning_ = true;
  return State::done;
}

RankTask::State RankTask::advanceCollectives(size_t byteBudget) {
  bool progressed = false;
  while (nextCollective_ < collectives_.size()) {
    if (!collectiveRunning_) {
      const State begun = beginCollective();
      if (begun == State::failed || begun == State::progressed) return begun;
      if (begun == State::waiting) return progressed ? State::progressed : State::waiting;
      if (!collectiveRunning_) {  // nothing to move
        ++nextCollective_;
        progressed = true;
        continue;
      }
    }
    switch (collectiveRun_.advance(byteBudget)) {
      case State::done:
        collectiveRunning_ = false;
        ++nextCollective_;
        progressed = true;
        break;
      case State::progressed:
        return State::progressed;
      case State::waiting:
        return progressed ? State::progressed : State::waiting;
      case State::failed:
        return fail(collectiveRun_.status());
    }
  }
  return State::done;
}

Status RankTask::startMessages() {
  launches_.resize(messages_.size());
  for (size_t i = 0; i < messages_.size(); ++i) {
    const Operation& message = messages_[i];
    TUTTI_TRY(checkSelfMessage(communicator_.rank(), message));
    TUTTI_ASSIGN(const Plan plan, communicator_.planner().planMessage(message));
    launches_[i] = makeLaunch(communicator_, message, plan, 0);
  }
  TUTTI_ASSIGN(messageRun_, communicator_.executor().start(launches_));
  return Status::ok();
}

RankTask::State RankTask::advanceMessages(size_t byteBudget) {
  if (messagesDone_) return State::done;
  const bool checks = communicator_.checksCalls();
  if (!messagesBegun_) {
    messagesBegun_ = true;
    // A collective of the same group goes first in what is told about this rank.
    if (collectives_.empty())
      communicator_.monitor().progress.begin(messages_.front(), 0, static_cast<uint32_t>(messages_.size()));
    if (checks) {
      checkedMessages_.begin(communicator_, messages_);
    } else if (Status started = startMessages(); !started.isOk()) {
      return fail(std::move(started));
    }
  }
  if (checks) {
    const State checked = checkedMessages_.advance(byteBudget);
    if (checked == State::failed) return fail(checkedMessages_.status());
    messagesDone_ = checked == State::done;
    return checked;
  }
  const State state = messageRun_->advance(byteBudget);
  if (state == State::failed) return fail(messageRun_->status());
  if (state == State::done) {
    messagesDone_ = true;
    messageRun_.reset();
  }
  return state;
}

RankTask::State RankTask::advance(size_t byteBudget) {
  if (communicator_.faults().stopped()) return fail(communicator_.error());
  Progress& progress = communicator_.monitor().progress;
  State state = State::waiting;
  const Status thrown = statusOf([&] {
    state = advanceBoth(byteBudget);
    if (state == State::waiting && progress.wanted()) publishWaits();
    return Status::ok();
  });
  if (!thrown.isOk()) return fail(thrown);  // out of memory: on a stream's thread nobody else would catch it
  if (state == State::progressed) progress.moved();
  return state;
}

void RankTask::publishWaits() {
  std::vector<WaitFor> waits;
  if (collectiveChecking_) collectiveCheck_.waits(&waits);
  if (collectiveRunning_) collectiveRun_.waits(&waits);
  if (messagesBegun_ && !messagesDone_) {
    if (messageRun_ != nullptr) appendWaits(*messageRun_, &waits);
    checkedMessages_.waits(&waits);
  }
  communicator_.monitor().progress.publish(std::move(waits));
}

RankTask::State RankTask::advanceBoth(size_t byteBudget) {
  const State collectives = advanceCollectives(byteBudget);
  if (collectives == State::failed) return collectives;
  const State messages = advanceMessages(byteBudget);
  if (messages == State::failed) return messages;
  if (collectives == State::done && messages == State::done) return State::done;
  return collectives == State::waiting && messages != State::progressed   ? State::waiting
         : messages == State::waiting && collectives != State::progressed ? State::waiting
                                                                          : State::progressed;
}

std::string RankTask::position() const {
  std::string text;
  if (nextCollective_ < collectives_.size()) {
    text = collectiveRunning_ ? collectiveRun_.position() : std::string("not started");
  }
  if (messageRun_ != nullptr) text += (text.empty() ? "" : "; ") + messageRun_->position();
  return text.empty() ? "done" : text;
}

void RankTask::runToEnd() {
  communicator_.monitor().arm();
  Status status = communicator_.tasks().waitForTurn(*this, communicator_.faults());
  if (status.isOk()) {
    const auto state = communicator_.executor().drive([this] { return advance(); });
    if (state == State::failed) status = status_;
  }
  status_ = std::move(status);
  complete();
}

void RankTask::complete() {
  // The runs go back to the executor while this thread still has the turn.
  messageRun_.reset();
  collectiveRun_.end();
  if (communicator_.checksCalls()) {
    checkedMessages_.end();
    communicator_.executor().returnConnections();  // what was compared need not have needed a run
  }
  communicator_.monitor().progress.end();
  if (!status_.isOk()) communicator_.fail(communicator_.rootCause(status_));
  communicator_.tasks().finish(*this);
  finished.store(1, std::memory_order_release);
  finished.notify_all();
}

}  // namespace tutti
