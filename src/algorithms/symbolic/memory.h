// The memory of all ranks while schedules are executed symbolically, and the rules of its use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithms/schedule.h"
#include "algorithms/symbolic/happens_before.h"
#include "algorithms/symbolic/value.h"
#include "base/status.h"

namespace tutti {

/// Who touches memory, when.
struct Accessor {
  int32_t rank = 0;
  size_t lane = 0;  // numbered over all ranks
  int32_t call = 0;
  int32_t slice = 0;
  const Step* step = nullptr;
};

/// One segment of a buffer of rank `owner`.
struct Place {
  Buffer buffer = Buffer::input;
  int32_t owner = 0;
  int32_t segment = 0;
};

/// Checks every access: the segment exists there; its memory is shared as the schedule declares; it is
/// ordered after conflicting ones (races); peers use a rank's input and output only between the begin and the
/// end of its call, scratch halves only when earlier calls are done with them.
class SymbolicMemory {
 public:
  struct Options {
    int32_t ranks = 1;
    int32_t slices = 1;
    int32_t scratchHalves = 2;
    int32_t lanesPerRank = 1;
    bool inPlace = false;
  };
  SymbolicMemory(const Options& options, const HappensBefore& order);

  /// Rank `schedule.rank` enters call number `call`: its input holds fresh contributions, its output nothing.
  void beginCall(const Schedule& schedule, int32_t call);
  /// The caller may now reuse the rank's buffers: fails when a peer's access is not ordered before that.
  Status endCall(int32_t rank);

  Status load(const Accessor& who, const Place& place, Value* value);
  Status store(const Accessor& who, const Place& place, const Value& value);
  /// Contents of an output segment, for the postcondition.
  const Value& output(int32_t rank, int32_t segment, int32_t slice) const;
  /// True when the two places are the same memory because the call is in place.
  bool same(const Place& a, const Place& b) const;
  /// True when that buffer of rank `owner` has the segment.
  static bool exists(const Schedule& schedule, const Place& place);

 private:
  struct Cell {
    Value value;
    AccessLog log;
  };
  /// Accesses to a scratch half in one call, the last of each lane.
  struct HalfUse {
    std::vector<Epoch> reads;
    std::vector<Epoch> writes;
    std::vector<bool> checkedAgainstEarlier;
  };
  struct Half {
    int32_t call = -1;
    std::vector<Cell> cells;
    std::vector<HalfUse>
        uses;  // by call; cut at different sizes, calls conflict wherever they touch the half
  };
  struct RankMemory {
    int32_t call = -1;
    const Schedule* schedule = nullptr;
    uint32_t beganAt = 0;
    std::vector<Cell> input;  // in place: unused, the cells of output stand for both
    std::vector<Cell> output;
    std::vector<Epoch> peers;  // last access of each lane of another rank, in this call
    int32_t sharedRuns = 0;    // slice runs of earlier calls that share scratch
    std::array<Half, 2> shared;
    std::array<Half, 2> own;
  };

  Status find(const Accessor& who, const Place& place, bool write, Cell** cell);
  Status findUser(const Accessor& who, const Place& place, Cell** cell);
  Status findScratch(const Accessor& who, const Place& place, bool write, Cell** cell);
  Status checkHalf(const Accessor& who, const Place& place, bool write, Half& half);
  Status checkOrder(const Accessor& who, const Place& place, bool write, Cell& cell);
  Status race(const char* what, const Place& place, const Epoch& other) const;
  size_t userIndex(const Schedule& schedule, int32_t segment, int32_t slice) const;

  Options options_;
  const HappensBefore& order_;
  std::vector<RankMemory> ranks_;
};

/// "output[3] of rank 1".
std::string toText(const Place& place);

}  // namespace tutti
