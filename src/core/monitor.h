// Watches one rank's operations, and asks the other ranks where they stand. Works on the service thread.
//
//   rank 2                        rank 0                          every rank
//     an operation does not move
//     or tutti-ras asks
//     SURVEY id, whole  ------->  one collection at a time
//                                 for each kind       ASK id  -->  wakes the running thread, so that it
//                                                                  writes down what it waits for;
//                                                                  30 ms later:
//                                                  <-- ANSWER      positions
//                                 all, or time is up
//               <---------------  RESULT id, positions
//
// The messages are notes of the control channel's star. `whole`: a rank answers for all communicators of its
// process, so that one question shows the job.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/fault_state.h"
#include "base/io_service.h"
#include "bootstrap/control.h"
#include "core/position.h"
#include "core/progress.h"
#include "transport/doorbell.h"

namespace tutti {

class RasServer;

class Monitor : public std::enable_shared_from_this<Monitor> {
 public:
  using Answer = std::function<void(std::vector<RankPosition>)>;

  /// What the communicator gives. Used from start() to stop(), on the service thread, with the monitor
  /// locked.
  struct Subject {
    int rank = 0;
    int ranks = 1;
    int device = 0;
    std::string name;
    std::vector<uint64_t> hostKeys;  // by rank: see RankPosition
    Control* control = nullptr;
    Doorbell* bell = nullptr;
    std::shared_ptr<const FaultState> faults;
    ncclResult_t timedOut = ncclRemoteError;  // the code of a time-out
    std::function<bool()> busy;               // operations are enqueued that have not ended
    std::function<void(Progress&)> observe;   // looks where kernels stand, and writes it down; may be empty
    std::function<std::string()> details;     // more about a stall, for the log; may be empty
    std::function<void(const Status&)> fail;  // ends the communicator; must not block
  };

  /// Written by the thread that runs operations.
  Progress progress;

  /// From now on the communicator is watched, answers, and is seen by tutti-ras.
  void start(Subject subject);
  /// After it returns nothing of the subject is used any more.
  void stop();
  ~Monitor();

  /// For whoever is about to wait in an operation: the watch runs while operations do. Costs a load when it
  /// runs already.
  void arm() {
    if (!armed_.load(std::memory_order_relaxed)) startWatch();
  }

  /// A wait that is no operation in its turn (ncclWaitSignal): reported like one while the object lives.
  class OutsideWait {
   public:
    OutsideWait(Monitor& monitor, const CallName& call, const WaitFor& wait);
    ~OutsideWait();
    OutsideWait(const OutsideWait&) = delete;
    OutsideWait& operator=(const OutsideWait&) = delete;

   private:
    Monitor& monitor_;
    uint64_t key_;
  };

  /// A note of a peer; see Control.
  void onNote(int from, std::string_view bytes);

  /// Where all ranks stand. `answer` is called once, on the service thread, within `limit` and half a second;
  /// with this rank alone when rank 0 does not answer. Not called after stop().
  void survey(bool whole, std::chrono::milliseconds limit, Answer answer);

  uint64_t session() const { return session_; }
  int ranks() const { return subject_.ranks; }

  /// The monitors of this process that are started.
  static std::vector<std::shared_ptr<Monitor>> all();

 private:
  using Clock = std::chrono::steady_clock;
  /// Rank 0: an answer that is being put together.
  struct Collection {
    uint32_t id = 0;
    bool whole = false;
    std::set<int> missing;
    std::vector<RankPosition> positions;
    std::vector<std::pair<int, uint32_t>> requesters;  // rank and its id of the question
    std::vector<Answer> local;
    uint64_t timer = 0;
  };
  struct Question {
    Answer answer;
    uint64_t timer = 0;
  };

  struct Outside {
    CallName call;
    WaitFor wait;
    Clock::time_point since;
  };

  // mutex_ held.
  uint64_t movement() const;
  bool running() const { return subject_.control != nullptr; }
  uint64_t after(std::chrono::milliseconds delay, std::function<void()> work);
  void cancel(uint64_t timer);
  void wantDetails();
  RankPosition position() const;
  RankPosition absent(int rank) const;
  Collection& collect(bool whole, std::chrono::milliseconds limit);
  void tick();
  void seen(uint64_t movement);
  void addTick();

  void startWatch();
  void answerLater(bool whole, std::function<void(std::vector<RankPosition>)> deliver);
  std::vector<RankPosition> snapshots(bool whole);
  void onSurvey(int from, WireReader& in);
  void onAsk(WireReader& in);
  void onAnswer(int from, WireReader& in);
  void onResult(WireReader& in);
  void contribute(uint32_t id, int from, std::vector<RankPosition> positions);
  void finishCollection(uint32_t id);
  void finishQuestion(uint32_t id, std::vector<RankPosition> positions);
  void report(uint64_t seenThen, bool timedOut, std::vector<RankPosition> positions);

  mutable std::mutex mutex_;  // guards all below
  Subject subject_;
  uint64_t session_ = 0;
  std::shared_ptr<RasServer> ras_;
  uint64_t nextKey_ = 1;
  std::map<uint64_t, Outside> outside_;
  std::map<uint64_t, IoService::Id> timers_;
  uint32_t nextId_ = 1;
  std::map<uint32_t, Question> questions_;
  std::map<uint32_t, Collection> collections_;

  // The watch; service thread.
  std::atomic<bool> armed_{false};
  uint64_t seenMovement_ = ~uint64_t{0};
  Clock::time_point lastMove_;
  std::chrono::milliseconds warnAfter_{0};   // the next warning, since the last movement; 0: none
  std::chrono::milliseconds checkAfter_{0};  // the next look whether calls contradict each other
  bool asking_ = false;
};

}  // namespace tutti
