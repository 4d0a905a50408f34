#include "core/monitor.h"

#include <algorithm>

#include "base/log.h"
#include "base/params.h"
#include "core/call_check.h"
#include "core/ras_server.h"
#include "core/stall_report.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;

enum : uint8_t { kSurvey = 1, kAsk = 2, kAnswer = 3, kResult = 4 };

/// A running thread that was woken writes down what it waits for within this time.
constexpr milliseconds kDetailTime{30};
constexpr milliseconds kReportLimit{1000};
constexpr milliseconds kGrace{500};
constexpr milliseconds kLongestTick{5000};
constexpr milliseconds kShortestTick{20};
/// With TUTTI_CHECK: how long ranks must stand still before it is asked whether their calls contradict each
/// other.
constexpr milliseconds kContradictionAfter{5000};
constexpr size_t kMostPositions = size_t{1} << 20;

struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<Monitor>> monitors;
};
Registry& registry() {
  static Registry& all = *new Registry;  // never destroyed: used by the service thread, also at exit
  return all;
}

std::string encodePositions(const std::vector<RankPosition>& positions) {
  WireWriter out;
  out.u32(static_cast<uint32_t>(positions.size()));
  for (const RankPosition& one : positions) one.encode(out);
  return std::move(out).bytes();
}

bool decodePositions(WireReader& in, std::vector<RankPosition>& positions) {
  const uint32_t count = in.u32();
  if (!in.ok() || count > kMostPositions) return false;
  for (uint32_t i = 0; i < count; ++i) {
    RankPosition one;
    if (!RankPosition::decode(in, one)) return false;
    positions.push_back(std::move(one));
  }
  return in.finished();
}

/// How often the watch looks: four times within the shortest of the times that matter.
milliseconds tickPeriod() {
  milliseconds shortest = 4 * kLongestTick;
  for (const milliseconds one : {params().stallWarn.time(), params().timeout.time()})
    if (one.count() != 0) shortest = std::min(shortest, one);
  if (callsAreChecked()) shortest = std::min(shortest, kContradictionAfter);
  return std::clamp(shortest / 4, kShortestTick, kLongestTick);
}

milliseconds contradictionAfter() {
  const milliseconds warn = params().stallWarn.time();
  return warn.count() == 0 ? kContradictionAfter : std::min(warn, kContradictionAfter);
}

uint64_t msSince(std::chrono::steady_clock::time_point moment) {
  const auto passed = std::chrono::steady_clock::now() - moment;
  return static_cast<uint64_t>(
      std::max<int64_t>(0, std::chrono::duration_cast<milliseconds>(passed).count()));
}

}  // namespace

Monitor::~Monitor() { stop(); }

std::vector<std::shared_ptr<Monitor>> Monitor::all() {
  std::vector<std::shared_ptr<Monitor>> found;
  const std::lock_guard lock(registry().mutex);
  for (const auto& one : registry().monitors)
    if (auto monitor = one.lock()) found.push_back(std::move(monitor));
  return found;
}

void Monitor::start(Subject subject) {
  {
    const std::lock_guard lock(mutex_);
    session_ = subject.control->session();
    if (subject.name.empty()) subject.name = fmt::format("{:08x}", static_cast<uint32_t>(session_));
    subject_ = std::move(subject);
    ras_ = RasServer::ofProcess();
  }
  const std::lock_guard lock(registry().mutex);
  std::erase_if(registry().monitors, [](const auto& one) { return one.expired(); });
  registry().monitors.push_back(weak_from_this());
}

void Monitor::stop() {
  std::map<uint64_t, IoService::Id> timers;
  std::shared_ptr<RasServer> ras;  // closed when it was the last, without the lock
  {
    const std::lock_guard lock(mutex_);
    if (!running()) return;
    subject_.control = nullptr;
    subject_.bell = nullptr;
    subject_.busy = nullptr;
    subject_.fail = nullptr;
    timers.swap(timers_);
    questions_.clear();
    collections_.clear();
    ras = std::move(ras_);
    armed_.store(true, std::memory_order_relaxed);  // nothing starts the watch any more
  }
  for (const auto& [key, id] : timers) ioService().remove(id);
  {
    const std::lock_guard lock(registry().mutex);
    std::erase_if(registry().monitors, [this](const auto& one) {
      const auto monitor = one.lock();
      return monitor == nullptr || monitor.get() == this;
    });
  }
}

/// Calls `work` on the service thread, unless stop() comes first. `work` runs with nothing locked.
uint64_t Monitor::after(milliseconds delay, std::function<void()> work) {
  const uint64_t key = nextKey_++;
  auto timer = ioService().addTimer(delay, [weak = weak_from_this(), key, work = std::move(work)] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    {
      const std::lock_guard lock(self->mutex_);
      if (!self->running() || self->timers_.erase(key) == 0) return;
    }
    work();
  });
  if (timer.isOk()) timers_[key] = *timer;  // else out of descriptors: nothing is watched
  return key;
}

/// Forgets a timer. Its function may be about to run, and then finds itself unknown.
void Monitor::cancel(uint64_t timer) {
  const auto found = timers_.find(timer);
  if (found == timers_.end()) return;
  const IoService::Id id = found->second;
  timers_.erase(found);
  // On the service thread remove() does not wait, so the lock may be held.
  ioService().remove(id);
}

// --- The watch ---

void Monitor::startWatch() {
  if (armed_.exchange(true, std::memory_order_acq_rel)) return;
  const bool wanted = params().stallWarn() != 0 || params().timeout() != 0 || callsAreChecked();
  const std::lock_guard lock(mutex_);
  if (!running() || (!wanted && !subject_.observe)) return;
  // Called by a thread that has an operation to run. Without memory for a timer the next one tries again.
  if (!statusOf([this] {
         seen(movement());
         addTick();
         return Status::ok();
       }).isOk())
    armed_.store(false, std::memory_order_release);
}

/// A number that differs when anything moved.
uint64_t Monitor::movement() const {
  const Progress::Snapshot now = progress.read();
  if (now.running() || outside_.empty()) return now.movement;
  return now.movement ^ outside_.begin()->first << 32;
}

Monitor::OutsideWait::OutsideWait(Monitor& monitor, const CallName& call, const WaitFor& wait)
    : monitor_(monitor) {
  {
    const std::lock_guard lock(monitor_.mutex_);
    key_ = monitor_.nextKey_++;
    monitor_.outside_[key_] = {call, wait, Clock::now()};
  }
  monitor_.arm();
}

Monitor::OutsideWait::~OutsideWait() {
  const std::lock_guard lock(monitor_.mutex_);
  monitor_.outside_.erase(key_);
}

/// Something moved since the last look.
void Monitor::seen(uint64_t movement) {
  seenMovement_ = movement;
  lastMove_ = Clock::now();
  warnAfter_ = params().stallWarn.time();
  checkAfter_ = contradictionAfter();
}

void Monitor::addTick() {
  // Kernels cannot call anybody when something is wrong.
  constexpr milliseconds kWithKernels{250};
  after(subject_.observe ? std::min(tickPeriod(), kWithKernels) : tickPeriod(), [this] { tick(); });
}

void Monitor::tick() {
  const std::lock_guard lock(mutex_);
  if (!running()) return;
  if (ras_ != nullptr) ras_->takePort();  // its holder may have gone
  if (subject_.observe) subject_.observe(progress);
  const bool waiting = progress.read().running() || !outside_.empty();
  const uint64_t now = movement();
  if (!subject_.busy() && !waiting) {
    armed_.store(false, std::memory_order_seq_cst);
    // Whoever began between the two found the watch running.
    if (!subject_.busy() || armed_.exchange(true, std::memory_order_seq_cst)) return;
  }
  if (now != seenMovement_ || !waiting) seen(now);
  const auto quiet = milliseconds(msSince(lastMove_));
  const bool stopped = subject_.faults->stopped();
  if (waiting && !asking_ && !stopped) {
    const milliseconds limit = params().timeout.time();
    const bool timedOut = limit.count() != 0 && quiet >= limit;
    const bool warn = warnAfter_.count() != 0 && quiet >= warnAfter_;
    const bool check = callsAreChecked() && quiet >= checkAfter_;
    if (timedOut || warn || check) {
      asking_ = true;
      checkAfter_ = quiet + contradictionAfter() / 2;
      after(milliseconds(0), [this, now, timedOut] {
        survey(false, kReportLimit, [this, now, timedOut](std::vector<RankPosition> positions) {
          report(now, timedOut, std::move(positions));
        });
      });
    }
  }
  addTick();
}

void Monitor::report(uint64_t seenThen, bool timedOut, std::vector<RankPosition> positions) {
  const std::lock_guard lock(mutex_);
  asking_ = false;
  if (!running() || movement() != seenThen || subject_.faults->stopped()) return;
  const auto never = contradiction(positions, subject_.rank, contradictionAfter());
  const milliseconds quiet(msSince(lastMove_));
  const std::string text = stallReport(positions, subject_.rank);
  if (never && (never->left || callsAreChecked())) {
    subject_.fail(never->left ? remoteError("{}", never->text) : invalidUsage("{}", never->text));
    return;
  }
  const bool warns = warnAfter_.count() != 0 && quiet >= warnAfter_ && !timedOut;
  if (warns) {
    // Printed whatever NCCL_DEBUG says: a job that stands still shall not do it in silence.
    detail::logAlways(never ? text + "; this can never end: " + never->text : text);
    warnAfter_ *= 2;
  }
  // Not where the ranks' calls are only looked at (TUTTI_CHECK).
  if ((warns || timedOut) && subject_.details)
    if (const std::string details = subject_.details(); !details.empty()) detail::logAlways(details);
  if (timedOut) {
    subject_.fail(
        Status(subject_.timedOut, fmt::format("timed out after {} without movement (TUTTI_TIMEOUT): {}",
                                              durationText(static_cast<uint64_t>(quiet.count())), text)));
  }
}

// --- Positions ---

/// Asks the running thread for what it waits for.
void Monitor::wantDetails() {
  if (subject_.observe) subject_.observe(progress);
  const Progress::Snapshot now = progress.read();
  if (movement() != seenMovement_) seen(movement());
  if (!now.running()) return;
  progress.want();
  subject_.bell->ring();
}

RankPosition Monitor::position() const {
  const Progress::Snapshot now = progress.read();
  RankPosition position = absent(subject_.rank);
  position.note = subject_.faults->stopped() ? subject_.faults->error().message() : std::string();
  position.device = subject_.device;
  position.collectivesCalled = now.collectivesCalled;
  position.messagesCalled = now.messagesCalled;
  position.collective = now.collective;
  position.call = now.call;
  position.messages = now.messages;
  if (!now.running() && !outside_.empty()) {
    const Outside& wait = outside_.begin()->second;
    position.state = RankPosition::State::running;
    position.call = wait.call;
    position.quietMs = msSince(wait.since);
    position.waits = {wait.wait};
  } else if (now.running()) {
    position.state = RankPosition::State::running;
    position.quietMs = seenMovement_ == movement() ? msSince(lastMove_) : 0;
    position.waits = progress.waits();
  } else {
    position.state = subject_.busy() ? RankPosition::State::queued : RankPosition::State::idle;
    position.quietMs = Progress::coarseMs() - std::min(Progress::coarseMs(), now.idleSinceMs);
  }
  return position;
}

/// What is known of a rank without asking it.
RankPosition Monitor::absent(int rank) const {
  RankPosition position;
  position.session = session_;
  position.communicator = subject_.name;
  position.ranks = subject_.ranks;
  position.rank = rank;
  subject_.control->whereabouts(rank, position.host, position.pid);
  if (static_cast<size_t>(rank) < subject_.hostKeys.size())
    position.hostKey = subject_.hostKeys[static_cast<size_t>(rank)];
  const std::string gone = subject_.control->gone(rank);
  if (!gone.empty()) {
    position.state = gone.starts_with("died") ? RankPosition::State::dead : RankPosition::State::left;
    position.note = gone;
  }
  return position;
}

/// Gives this rank's position, or those of all communicators of the process, after the running threads had
/// time to write down details.
void Monitor::answerLater(bool whole, std::function<void(std::vector<RankPosition>)> deliver) {
  if (whole) {
    for (const auto& one : all()) {
      const std::lock_guard lock(one->mutex_);
      if (one->running()) one->wantDetails();
    }
  }
  const std::lock_guard lock(mutex_);
  if (!running()) return;
  if (!whole) wantDetails();
  after(kDetailTime, [this, whole, deliver = std::move(deliver)] { deliver(snapshots(whole)); });
}

std::vector<RankPosition> Monitor::snapshots(bool whole) {
  std::vector<RankPosition> found;
  if (!whole) {
    const std::lock_guard lock(mutex_);
    if (running()) found.push_back(position());
    return found;
  }
  for (const auto& one : all()) {
    const std::lock_guard lock(one->mutex_);
    if (one->running()) found.push_back(one->position());
  }
  return found;
}

// --- Questions ---

void Monitor::survey(bool whole, milliseconds limit, Answer answer) {
  const std::lock_guard lock(mutex_);
  if (!running()) return;
  if (subject_.rank == 0) {
    collect(whole, limit).local.push_back(std::move(answer));
    return;
  }
  const uint32_t id = nextId_++;
  Question& question = questions_[id];
  question.answer = std::move(answer);
  const Status sent = subject_.control->note(
      0,
      WireWriter().u8(kSurvey).u32(id).u8(whole ? 1 : 0).u32(static_cast<uint32_t>(limit.count())).bytes());
  // When rank 0 is gone, what is known here.
  const milliseconds patience = sent.isOk() ? limit + kGrace : milliseconds(0);
  question.timer = after(patience, [this, whole, id] {
    answerLater(whole, [this, id](std::vector<RankPosition> own) {
      {
        const std::lock_guard own_lock(mutex_);
        if (!running()) return;
        for (int rank = 0; rank < subject_.ranks; ++rank)
          if (rank != subject_.rank) own.push_back(absent(rank));
      }
      finishQuestion(id, std::move(own));
    });
  });
}

void Monitor::finishQuestion(uint32_t id, std::vector<RankPosition> positions) {
  Answer answer;
  {
    const std::lock_guard lock(mutex_);
    const auto found = questions_.find(id);
    if (found == questions_.end()) return;
    cancel(found->second.timer);
    answer = std::move(found->second.answer);
    questions_.erase(found);
  }
  answer(std::move(positions));
}

void Monitor::onNote(int from, std::string_view bytes) {
  WireReader in(bytes);
  switch (in.u8()) {
    case kSurvey:
      return onSurvey(from, in);
    case kAsk:
      return onAsk(in);
    case kAnswer:
      return onAnswer(from, in);
    case kResult:
      return onResult(in);
    default:
      logInfo(Subsystem::ras, "a note of rank {} that makes no sense ({} bytes)", from, bytes.size());
  }
}

void Monitor::onSurvey(int from, WireReader& in) {
  const uint32_t id = in.u32();
  const bool whole = in.u8() != 0;
  const milliseconds limit(std::min<uint32_t>(in.u32(), 600000));
  const std::lock_guard lock(mutex_);
  if (!in.finished() || !running() || subject_.rank != 0) return;
  collect(whole, limit).requesters.emplace_back(from, id);
}

/// Rank 0: the collection of this kind that is under way, or a new one.
Monitor::Collection& Monitor::collect(bool whole, milliseconds limit) {
  for (auto& [id, one] : collections_)
    if (one.whole == whole) return one;
  const uint32_t id = nextId_++;
  Collection& made = collections_[id];
  made.id = id;
  made.whole = whole;
  made.missing.insert(0);
  const std::string ask = WireWriter().u8(kAsk).u32(id).u8(whole ? 1 : 0).bytes();
  for (int rank = 1; rank < subject_.ranks; ++rank)
    if (subject_.control->gone(rank).empty() && subject_.control->note(rank, ask).isOk())
      made.missing.insert(rank);
  made.timer = after(limit, [this, id] { finishCollection(id); });
  after(milliseconds(0), [this, id, whole] {
    answerLater(whole, [this, id](std::vector<RankPosition> own) { contribute(id, 0, std::move(own)); });
  });
  return made;
}

void Monitor::onAsk(WireReader& in) {
  const uint32_t id = in.u32();
  const bool whole = in.u8() != 0;
  if (!in.finished()) return;
  answerLater(whole, [this, id](std::vector<RankPosition> own) {
    const std::lock_guard lock(mutex_);
    if (!running()) return;
    // When rank 0 is gone nobody waits for it.
    subject_.control->note(0, WireWriter().u8(kAnswer).u32(id).raw(encodePositions(own)).bytes()).ignore();
  });
}

void Monitor::onAnswer(int from, WireReader& in) {
  const uint32_t id = in.u32();
  std::vector<RankPosition> positions;
  if (!decodePositions(in, positions)) return;
  contribute(id, from, std::move(positions));
}

void Monitor::contribute(uint32_t id, int from, std::vector<RankPosition> positions) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = collections_.find(id);
    if (found == collections_.end() || found->second.missing.erase(from) == 0) return;
    auto& all = found->second.positions;
    all.insert(all.end(), std::make_move_iterator(positions.begin()),
               std::make_move_iterator(positions.end()));
    if (!found->second.missing.empty()) return;
  }
  finishCollection(id);
}

void Monitor::finishCollection(uint32_t id) {
  std::vector<Answer> local;
  std::vector<RankPosition> positions;
  {
    const std::lock_guard lock(mutex_);
    const auto found = collections_.find(id);
    if (found == collections_.end() || !running()) return;
    Collection done = std::move(found->second);
    cancel(done.timer);
    collections_.erase(found);
    positions = std::move(done.positions);
    std::set<int> present;
    for (const RankPosition& one : positions)
      if (one.session == session_) present.insert(one.rank);
    for (int rank = 0; rank < subject_.ranks; ++rank)
      if (present.count(rank) == 0) positions.push_back(absent(rank));
    for (const auto& [rank, question] : done.requesters) {
      const auto wanted = done.whole ? positions : condense(positions, rank);
      subject_.control
          ->note(rank, WireWriter().u8(kResult).u32(question).raw(encodePositions(wanted)).bytes())
          .ignore();
    }
    local = std::move(done.local);
  }
  for (Answer& answer : local) answer(positions);
}

void Monitor::onResult(WireReader& in) {
  const uint32_t id = in.u32();
  std::vector<RankPosition> positions;
  if (decodePositions(in, positions)) finishQuestion(id, std::move(positions));
}

}  // namespace tutti
