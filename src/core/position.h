// Where a rank stands: which call it is in, since when, and whom it waits for. What ranks tell each other
// when one of them asks, and the texts made of it. docs/observability.md shows who asks whom.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/wire.h"
#include "core/operation.h"

namespace tutti {

/// What a call is, as far as ranks compare or report it. Fixed size on the wire.
struct CallName {
  enum class Kind : uint8_t { none, collective, send, recv, waitSignal };
  enum class Operator : uint8_t { none, sum, prod, max, min, average, own };

  Kind kind = Kind::none;
  Collective collective = Collective::allReduce;
  ncclDataType_t type = ncclInt8;
  Operator op = Operator::none;
  int32_t root = 0;     // or the peer of a message
  uint64_t count = 0;   // elements per block; bytes of a message; number of a signal
  uint64_t blocks = 0;  // of a collective with a count for each rank: a digest of the counts

  static CallName of(const Operation& operation);
  static constexpr size_t kBytes = 24;
  void encode(WireWriter& out) const;
  static CallName decode(WireReader& in);  // values out of range become none
  uint64_t bytes() const;                  // per block
  /// "AllReduce of 400000 x float (sum)", "Send of 4096 bytes to rank 1".
  std::string text() const;
  friend bool operator==(const CallName&, const CallName&) = default;
};

/// Something that a rank waits for.
struct WaitFor {
  enum class What : uint8_t { data, room, signal, call };
  int32_t peer = -1;
  What what = What::data;
  uint64_t step = 0;  // of steps; 0: not known
  uint64_t steps = 0;
  uint64_t slice = 0;
  uint64_t slices = 0;
  friend bool operator==(const WaitFor&, const WaitFor&) = default;
};

/// One rank of one communicator.
struct RankPosition {
  enum class State : uint8_t {
    idle,     // nothing is enqueued
    queued,   // called, but its stream has not come to it
    running,  // in `call`
    left,     // said goodbye
    dead,
    silent,  // did not answer
  };

  uint64_t session = 0;  // names the communicator
  std::string communicator;
  int32_t ranks = 1;
  int32_t rank = 0;
  std::string host;
  uint64_t hostKey = 0;  // tells hosts (containers) of one name apart; 0: not known
  int64_t pid = 0;
  int32_t device = -1;
  State state = State::silent;
  uint64_t collectivesCalled = 0;
  uint64_t messagesCalled = 0;
  uint64_t collective = 0;  // the number of the one that runs, or ran last
  uint32_t messages = 0;    // of the group that runs
  CallName call;
  uint64_t quietMs = 0;  // without movement; idle: since the last operation
  std::vector<WaitFor> waits;
  std::string note;  // why it is gone; its communicator's error

  void encode(WireWriter& out) const;
  static bool decode(WireReader& in, RankPosition& position);
  /// "rank 2 (host node7, pid 4242)".
  std::string who() const;
  /// "has called 16 collectives and is idle since 31 s", "is in Send of 8 bytes to rank 1, waits for ...".
  std::string standing() const;
};

const char* nameOf(RankPosition::State state);
const char* nameOf(WaitFor::What what);
/// "data from rank 2, step 3 of 14, slice 1 of 2".
std::string describeWait(const WaitFor& wait);
/// "0.3 s", "31 s", "12 min".
std::string durationText(uint64_t ms);

}  // namespace tutti
