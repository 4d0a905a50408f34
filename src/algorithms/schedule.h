// The schedule IR: what one rank does, on one channel, to play its part in a collective.
//
// An algorithm is a pure function that returns a Schedule. Four readers use the same steps: the checker
// proves it, the cost model prices it, the host executor runs it, the CUDA executor flattens it for its
// kernel.
//
//   data    |<------------- count elements on this channel ------------->|
//   segments|  segment 0   |  segment 1   |  segment 2   |  segment 3   |   (equal parts of a block, or per
//   rank) slice 0 |##            |##            |##            |##            |   one run of the whole
//   program slice 1 |  ##          |  ##          |  ##          |  ##          |   the next run of the whole
//   program
//
// Execution is slice by slice: every lane runs its whole program once per slice, and in slice k a segment
// stands for its k-th piece of at most `sliceBytes`. sliceBytes x (segments a step moves) never exceeds a
// FIFO slot, so a step moves one slot at most, and a proof over a few slices is a proof for any byte count.
// Lanes advance independently: lane A may be in slice 3 while lane B is in slice 1, held together only by
// messages and signals.
//
// See docs/schedule.md for the reasons and for drawings of the shipped algorithms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

enum class Collective : uint8_t {
  allReduce,
  allGather,
  reduceScatter,
  broadcast,
  reduce,
  allToAll,
  gather,
  scatter,
  sendRecv,  // one message from rank `root` to the other of two ranks; point-to-point calls use it
};

/// index(i) = base + stride * i, wrapped into [0, modulus) when modulus > 0; i is the iteration of the
/// enclosing block. Segment and peer numbers have this form, which keeps a ring's text the same size at any
/// rank count.
struct Affine {
  int32_t base = 0;
  int32_t stride = 0;
  int32_t modulus = 0;

  constexpr Affine() = default;
  constexpr Affine(int32_t constant) : base(constant) {}  // NOLINT(google-explicit-constructor)
  constexpr Affine(int32_t b, int32_t s, int32_t m) : base(b), stride(s), modulus(m) {}

  constexpr int32_t at(int32_t i) const {
    const int64_t value = base + static_cast<int64_t>(stride) * i;
    if (modulus <= 0) return static_cast<int32_t>(value);
    const int64_t wrapped = value % modulus;
    return static_cast<int32_t>(wrapped < 0 ? wrapped + modulus : wrapped);
  }
  friend constexpr bool operator==(const Affine&, const Affine&) = default;
};

/// input and output are the user's buffers. Reading `input` means reading the caller's contribution: the
/// executor applies the operator's pre-scaling (PreMulSum, float average) on the way, so a schedule must read
/// every contribution from `input` exactly once per use and never read a partial result from it. input and
/// output may be the same memory (in place). A copy whose source and destination are then the same memory
/// does nothing (unless it scales or finalizes).
///
/// scratch belongs to the channel. It holds one slice of each of its segments, twice: slice runs alternate
/// between the two halves. Which memory that is depends on Schedule::sharedScratch:
///   true   memory that the ranks of a host map from each other. The half is the parity of the channel's
///          running slice number, which counts the slice runs of such schedules only and so is the same on
///          all of those ranks. Every slice run of such a schedule is a barrier in one direction: no rank
///          ends it before all have begun it. So when a rank begins slice g + 2, all have ended slice g, and
///          it may write the half that they used then, whatever schedules the three runs belonged to.
///   false  private memory of the rank; the half is the parity of the slice number within the call.
enum class Buffer : uint8_t { input, output, scratch };

constexpr int32_t kSelf = -1;
constexpr int32_t kNoSegment = -1;

/// Which segments a step moves, beyond the first: the k-th is `first + k / run * stride + k % run`. That is
/// runs of `run` neighbours, `stride` apart:
///
///   run 1, stride 1 (the default)   first, first+1, first+2, ...
///   run 2, stride 4                 first, first+1,   first+4, first+5,   first+8, ...
struct Pattern {
  int32_t run = 1;
  int32_t stride = 1;

  constexpr bool consecutive() const { return run == 1 && stride == 1; }
  constexpr int32_t offset(int32_t k) const {
    return run == 1 ? k * stride
                    : k / run * stride + k % run;  // asked for at every step: no division if possible
  }
  friend constexpr bool operator==(const Pattern&, const Pattern&) = default;
};

/// `count` segments of a buffer, from `segment` on by `pattern` (numbers wrap at the buffer's number of
/// segments; none comes twice), in the memory of rank `rank` (kSelf: this rank; another rank's memory must be
/// mapped).
struct Location {
  Buffer buffer = Buffer::input;
  Affine segment;
  int32_t count = 1;
  Affine rank = kSelf;
  Pattern pattern = {};
  friend constexpr bool operator==(const Location&, const Location&) = default;
};

/// Notation: msg is the next message from `peerFrom` on `portFrom`; (+) is the reduction; `->` is a message
/// to `peerTo` on `portTo`. A send copies into the connection's next free FIFO slot and does not wait for the
/// receiver unless all slots are full.
///
/// In steps with messages a team stands for its members' memory (in copy and reduceTeam dstTeam does): with
/// team >= 0 `src` is
/// src@t0 (+) src@t1 (+) ... over the ranks t of `team`, in that order (with a message: msg (+) src@t0 (+)
/// ..., and messageFirst is set); with dstTeam >= 0 `dst` is that place in the memory of every rank of that
/// team.
enum class StepKind : uint8_t {
  send,                // -> src
  recv,                // dst = msg
  recvReduce,          // dst = src (+) msg
  recvReduceSend,      // -> src (+) msg
  recvCopySend,        // dst = msg; -> msg
  recvReduceCopySend,  // dst = src (+) msg; -> dst
  recvSend,            // -> msg                          (nothing kept; forwarded as it is)
  copy,                // dst = src                       (src or dst may be a peer's: get, put; dst of all of
                       // dstTeam)
  reduceLocal,         // dst = dst (+) src               (own memory)
  reduceTeam,          // dst = src@t0 (+) src@t1 (+) ... over the ranks t of `team`, in that order; with
                       // dstTeam >= 0 the result is stored to dst of every rank of that team
  signal,  // raise flag `flag` of every other rank of `team` (or of peerTo when team < 0, which may
           // be the own rank: then another lane waits for it); release
  wait,    // wait for one raise of `flag` by every other rank of `team` (or by peerFrom); acquire
};

/// One instruction. Unused fields keep their defaults. Build steps with the functions of Lane.
struct Step {
  StepKind kind = StepKind::copy;
  Location src;
  Location dst;
  Affine peerFrom;
  Affine peerTo;
  int16_t portFrom = 0;
  int16_t portTo = 0;
  int16_t flag = 0;
  int16_t team = -1;     // index into Schedule::teams
  int16_t dstTeam = -1;  // the same, of the ranks that get the result
  /// The data segment (first of count, by sizePattern) whose pieces the step moves; set where neither src nor
  /// dst is a user's buffer and so nothing else tells the size: scratch to scratch, scratch to a message, a
  /// message to scratch. A recvSend may do without.
  Affine sizeAs = kNoSegment;
  Pattern sizePattern = {};
  /// Order of a two-operand reduction: false: src (+) msg, true: msg (+) src. Lets the two ends of an
  /// exchange compute bitwise the same result.
  bool messageFirst = false;
  /// The value that this step writes holds the last contribution: the executor applies the operator's final
  /// step (integer average divides). Exactly one step does this to every value that reaches an output.
  bool finalize = false;
  friend constexpr bool operator==(const Step&, const Step&) = default;
};

/// The data segments whose pieces the step moves: the first of `count`, and how they go on. They ask the
/// segment table for their bytes. kNoSegment for signal and wait, and for a recvSend without sizeAs (as many
/// as arrived).
struct SizeSegments {
  Affine first = kNoSegment;
  Pattern pattern = {};
};
SizeSegments sizeSegments(const Step& step);
/// Number `k` of a location or of size segments whose first is `first`, among `total`, where numbers wrap.
constexpr int32_t wrappedSegment(int32_t first, const Pattern& pattern, int32_t k, int32_t total) {
  const int32_t segment = (first + pattern.offset(k)) % total;
  return segment < 0 ? segment + total : segment;
}
/// How many segments the step moves (recvSend carries it in dst.count; 0 for signal and wait).
int32_t movedSegments(const Step& step);

constexpr bool receives(StepKind kind) { return kind >= StepKind::recv && kind <= StepKind::recvSend; }
constexpr bool sends(StepKind kind) {
  return kind == StepKind::send || kind == StepKind::recvReduceSend || kind == StepKind::recvCopySend ||
         kind == StepKind::recvReduceCopySend || kind == StepKind::recvSend;
}
/// Steps that read `src` (of the own memory, a peer's or a team's).
constexpr bool readsSource(StepKind kind) {
  return kind == StepKind::send || kind == StepKind::recvReduce || kind == StepKind::recvReduceSend ||
         kind == StepKind::recvReduceCopySend || kind == StepKind::copy || kind == StepKind::reduceLocal ||
         kind == StepKind::reduceTeam;
}
/// Steps that write `dst`.
constexpr bool writesDestination(StepKind kind) {
  return kind == StepKind::recv || kind == StepKind::recvReduce || kind == StepKind::recvCopySend ||
         kind == StepKind::recvReduceCopySend || kind == StepKind::copy || kind == StepKind::reduceLocal ||
         kind == StepKind::reduceTeam;
}
/// Steps that add to what they receive.
constexpr bool reducesMessage(StepKind kind) { return receives(kind) && readsSource(kind); }
/// Steps that touch no data.
constexpr bool onlyOrders(StepKind kind) { return kind == StepKind::signal || kind == StepKind::wait; }

/// Steps repeated `iterations` times; the iteration number is the argument of every Affine inside.
struct Block {
  int32_t iterations = 1;
  std::vector<Step> steps;
  friend bool operator==(const Block&, const Block&) = default;
};

/// An instruction list that runs concurrently with the rank's other lanes. A message stream (peer, port,
/// direction) belongs to one lane only.
struct Lane {
  std::vector<Block> blocks;

  /// Steps added from here on repeat `iterations` times (none when it is 0 or less), until the next loop() or
  /// once().
  Lane& loop(int32_t iterations);
  Lane& once() { return loop(1); }
  /// The builder functions add one step to the current block and return it, so that fields can be set:
  /// lane.recvReduce(peer, src, dst).finalize = true;
  Step& send(Affine peer, Location src, int port = 0);
  Step& recv(Affine peer, Location dst, int port = 0);
  Step& recvReduce(Affine peer, Location src, Location dst, int port = 0);
  Step& recvReduceSend(Affine from, Location src, Affine to, int portFrom = 0, int portTo = 0);
  Step& recvCopySend(Affine from, Location dst, Affine to, int portFrom = 0, int portTo = 0);
  Step& recvReduceCopySend(Affine from, Location src, Location dst, Affine to, int portFrom = 0,
                           int portTo = 0);
  Step& recvSend(Affine from, Affine to, int count = 1, int portFrom = 0, int portTo = 0);
  Step& copy(Location src, Location dst);
  Step& reduceLocal(Location src, Location dst);
  Step& reduceTeam(int team, Location src, Location dst, int dstTeam = -1);
  Step& signal(Affine peer, int flag = 0);
  Step& wait(Affine peer, int flag = 0);
  Step& signalTeam(int team, int flag = 0);
  Step& waitTeam(int team, int flag = 0);
  friend bool operator==(const Lane&, const Lane&) = default;
};

/// How the buffers of a collective are cut into segments. A *block* is the unit of the collective: the whole
/// vector (allReduce, broadcast, reduce, sendRecv) or one rank's share (all others); every block is cut into
/// `parts` equal parts, and segment number = block * parts + part. Where a buffer holds only the own block
/// (allGather's input, reduceScatter's output, gather's input, scatter's output), only the segments of block
/// = rank exist in it.
///
/// name, collective, ranks, root, parts, maxCount, scratchSegments and sharedScratch are the same on all
/// ranks, sharedUserBuffers on all ranks of a host; rank, flags, teams and lanes are each rank's own.
struct Schedule {
  std::string name;  // "ring", "tree", ... as NCCL_ALGO and logs spell it
  Collective collective = Collective::allReduce;
  int32_t ranks = 1;
  int32_t rank = 0;
  int32_t root = 0;      // broadcast, reduce, gather, scatter; sender of sendRecv
  int32_t parts = 1;     // per block
  int32_t maxCount = 1;  // most segments that one message carries; 0: no rank sends messages
  int32_t scratchSegments = 0;
  bool sharedScratch = false;      // see Buffer
  bool sharedUserBuffers = false;  // some rank reads or writes the input or output of another of its host
  int16_t flags = 0;               // flag numbers used: 0 .. flags-1
  std::vector<std::vector<int32_t>> teams;
  std::vector<Lane> lanes;

  /// Blocks of the collective: 1 or `ranks`.
  int32_t blocks() const;
  int32_t segments() const { return blocks() * parts; }
  /// True when this rank or a peer touches the other's memory or flags: needs mapped connections.
  bool needsMapped() const;
  /// True when some rank of this host uses another rank's *user* buffers: all of them must have registered
  /// theirs or share a process. The same on all ranks of the host.
  bool needsMappedUserBuffers() const { return sharedUserBuffers; }
  /// Largest slice that this schedule may run with, in bytes, rounded down to a multiple of 64: messages fit
  /// a FIFO slot of `slotBytes`, the scratch segments fit a half of `scratchBytes` (private scratch too). The
  /// same on all ranks. SIZE_MAX where nothing limits it; 0 where the scratch is too small for the schedule.
  size_t maxSliceBytes(size_t slotBytes, size_t scratchBytes) const;
};

/// Ports that a schedule may use between two ranks, and flags between two ranks (limits of the executor's
/// tables). Schedules may use the same ports, since calls run one after the other; the last port is kept for
/// point-to-point messages, the one before it also serves those that a collective with a count for every rank
/// is made of (so that they are not taken for the user's).
constexpr int kMaxPorts = 8;
constexpr int kPointToPointPort = kMaxPorts - 1;
constexpr int kVariableCountPort = kMaxPorts - 2;
constexpr int kMaxFlags = 16;

/// Removes blocks that run no step (what loop(0) leaves) and lanes without blocks. Generators end with it.
Schedule tidy(Schedule schedule);

/// One step on one line: "recvReduceSend  rank 3 (+) input[2-i mod 4] -> rank 1".
std::string toText(const Step& step);
/// One line a step, loops indented: what `tutti-sim --show` and failing checks print.
std::string toText(const Schedule& schedule);

const char* name(Collective collective);
/// True for collectives that reduce: their input is scaled when read and their results are finalized.
bool isReduction(Collective collective);
/// True where one rank gives, or gets, what the others do not.
bool hasRoot(Collective collective);
const char* name(StepKind kind);

}  // namespace tutti
