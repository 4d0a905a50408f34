// What host and kernels agree on: a schedule flattened into plain arrays, the memory that ranks' kernels
// share, and the arguments of a launch. Plain structs of the same layout for both compilers; every function
// is constexpr, so that kernels can call it.
//
//   Schedule (algorithms)  --flatten-->  Program: one piece of memory, uploaded once, cached
//   a call                 ---------->  Call: buffers, counts, operator; in the kernel's arguments
//   what lasts between calls (counters, parities) lies in device memory and is advanced by kernels, so a
//   launch's arguments stay right when a graph replays it
//
// A thread block runs one lane of one call on one channel:
//
//   blockIdx.x   0        1        2        3        | 4  ...
//                call 0                              | call 1
//                channel 0         channel 1         |
//                lane 0   lane 1   lane 0   lane 1   |
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::device {

constexpr uint32_t kFifoDepth = 8;  // messages under way on a connection
constexpr uint32_t kPorts = 8;      // = kMaxPorts of algorithms/schedule.h
constexpr uint32_t kFlags = 16;     // = kMaxFlags
constexpr uint32_t kMostLinks = 256;
constexpr uint32_t kMostMembers = 256;      // ranks of a team
constexpr uint32_t kLaneStateBytes = 5256;  // of dynamic shared memory, for each block
constexpr uint32_t kLinkStateBytes = 56;    // of shared memory, for each link of a lane
constexpr uint32_t kWarp = 32;

// ---- the program ------------------------------------------------------------------------------------------

/// See tutti::Affine.
struct Affine {
  int32_t base = 0;
  int32_t stride = 0;
  int32_t modulus = 0;
  constexpr int32_t at(int32_t i) const {
    const int64_t value = base + static_cast<int64_t>(stride) * i;
    if (modulus <= 0) return static_cast<int32_t>(value);
    const int64_t wrapped = value % modulus;
    return static_cast<int32_t>(wrapped < 0 ? wrapped + modulus : wrapped);
  }
};

enum class BufferKind : uint8_t { input, output, scratch };  // as tutti::Buffer

/// Segments of a buffer: the k-th is first.at(i) + offset(k), wrapped into [0, segments).
struct Segments {
  Affine first;
  int32_t run = 1;  // see tutti::Pattern
  int32_t stride = 1;
  int32_t segments = 1;
  constexpr int32_t at(int32_t iteration, int32_t k) const {
    const int32_t offset = run == 1 ? k * stride : k / run * stride + k % run;
    const int32_t segment = (first.at(iteration) + offset) % segments;
    return segment < 0 ? segment + segments : segment;
  }
};

struct Location {
  Segments segments;
  Affine rank;  // only when ofPeer and the step has no team for this side
  BufferKind buffer = BufferKind::input;
  uint8_t ofPeer = 0;  // may be another rank's memory
  uint16_t reserved = 0;
};

/// The numbers of tutti::StepKind (a test compares them).
enum class StepKind : uint8_t {
  send,
  recv,
  recvReduce,
  recvReduceSend,
  recvCopySend,
  recvReduceCopySend,
  recvSend,
  copy,
  reduceLocal,
  reduceTeam,
  signal,
  wait,
};

/// Which sources are contributions that the operator scales: as tutti::Scaled.
enum class ScaledSources : uint8_t { none, first, rest, all };

/// One instruction; the meaning of the fields is that of tutti::Step and BoundStep.
struct Step {
  StepKind kind = StepKind::copy;
  ScaledSources scaled = ScaledSources::none;
  uint8_t receives = 0;
  uint8_t sends = 0;
  uint8_t hasSource = 0;
  uint8_t hasDestination = 0;
  uint8_t messageFirst = 0;
  uint8_t finalize = 0;
  int32_t pieces = 0;
  Location source;
  Location destination;
  Segments size;  // data segments that tell the pieces' sizes; all steps that move data but recvSend of a
                  // message whose size nobody knows (sizeKnown = 0)
  /// Index into linkNumbers of the message's connection; + iteration where it varies.
  uint32_t receiveLink = 0;
  uint32_t sendLink = 0;
  uint8_t receiveVaries = 0;
  uint8_t sendVaries = 0;
  uint8_t sizeKnown = 1;
  uint8_t reserved = 0;
  /// Ranges of the array of ranks; count 0: no team. Of signal and wait, sourceTeam holds the ranks to raise
  /// or to wait for: all of them, or (flagVaries) the one at `iteration`. Never the own rank in a team; a
  /// lane may signal its own rank by a single one.
  uint32_t sourceTeam = 0;
  uint32_t sourceTeamCount = 0;
  uint32_t destinationTeam = 0;
  uint32_t destinationTeamCount = 0;
  uint16_t flag = 0;
  uint8_t flagVaries = 0;
  uint8_t reserved2 = 0;
  uint32_t number = 0;  // of the step in its lane, from 1, for reports
};

struct Block {
  uint32_t firstStep = 0;
  uint32_t stepCount = 0;
  int32_t iterations = 1;
};

/// A connection that a lane uses: lanes keep the state of theirs in shared memory while they run.
struct Link {
  int32_t peer = 0;
  uint16_t port = 0;
  uint8_t sends = 0;  // else it receives
  uint8_t reserved = 0;
};

struct Lane {
  uint32_t firstBlock = 0;
  uint32_t blockCount = 0;
  uint32_t firstLink = 0;
  uint32_t linkCount = 0;  // at most kMostLinks
};

/// Head of the program; the arrays follow it at these offsets in bytes, each aligned to 16. No pointers: the
/// bytes can be copied to any device.
struct Program {
  uint64_t bytes = 0;  // of the whole
  uint32_t lanesAt = 0;
  uint32_t blocksAt = 0;
  uint32_t stepsAt = 0;
  uint32_t linksAt = 0;
  uint32_t linkNumbersAt = 0;  // uint16_t: numbers in the lane's links
  uint32_t ranksAt = 0;        // int32_t: members of teams
  uint32_t laneCount = 0;
  uint32_t stepCount = 0;
  int32_t rank = 0;
  int32_t ranks = 1;
  int32_t root = 0;
  int32_t parts = 1;         // data segment = block * parts + part
  int32_t blocksOfData = 1;  // 1, or a block a rank
  int32_t scratchSegments = 0;
  uint8_t inputHoldsAll = 0;  // the buffer has a block for every rank (holdsAllBlocks())
  uint8_t outputHoldsAll = 0;
  uint8_t sharedScratch = 0;
  uint8_t usesPeerBuffers = 0;  // touches peers' input or output: lanes exchange addresses first (Board)
  uint8_t usesScratch = 0;
  uint8_t hasUnknownSizes = 0;  // some step has sizeKnown = 0: protocol Simple only
  uint8_t sendsMessages = 0;    // some step sends or receives
  uint8_t reserved = 0;

  template <typename T>
  constexpr const T* array(uint32_t at) const {
    return static_cast<const T*>(
        static_cast<const void*>(static_cast<const char*>(static_cast<const void*>(this)) + at));
  }
  constexpr const Lane* lanes() const { return array<Lane>(lanesAt); }
  constexpr const Block* blocks() const { return array<Block>(blocksAt); }
  constexpr const Step* steps() const { return array<Step>(stepsAt); }
  constexpr const Link* links() const { return array<Link>(linksAt); }
  constexpr const uint16_t* linkNumbers() const { return array<uint16_t>(linkNumbersAt); }
  constexpr const int32_t* rankNumbers() const { return array<int32_t>(ranksAt); }
};

// ---- memory that kernels share
// ------------------------------------------------------------------------------

enum class Protocol : uint8_t { simple, ll, ll128 };  // as tutti::Protocol

/// Simple: bytes in slots; `tail` counts messages published, in the receiver's memory, written by the sender
/// alone; the sizes lie beside it.
struct alignas(64) MessageTail {
  uint64_t tail = 0;
  uint64_t reserved = 0;
  uint32_t bytes[kFifoDepth] = {};
};

/// One line of LL: 8 bytes of data and twice the flag, stored at once (16 bytes). The flag is the low half of
/// the message's number, counted from 1.
struct alignas(16) LineLL {
  uint32_t data1 = 0;
  uint32_t flag1 = 0;
  uint32_t data2 = 0;
  uint32_t flag2 = 0;
};
/// One line of LL128: eight threads store 16 bytes each, which the link keeps together; the last 8 bytes are
/// the message's number, counted from 1.
struct alignas(128) LineLL128 {
  uint64_t data[15] = {};
  uint64_t flag = 0;
};
constexpr uint32_t kDataLL = 8;
constexpr uint32_t kDataLL128 = 120;

/// Lines of a piece. Every piece of a message begins a line, so a message of several pieces needs the sum of
/// theirs; a message without data needs one.
constexpr uint64_t linesOfPieceLL(uint64_t bytes) { return (bytes + kDataLL - 1) / kDataLL; }
constexpr uint64_t linesOfPieceLL128(uint64_t bytes) { return (bytes + kDataLL128 - 1) / kDataLL128; }

/// A rank's end of a connection (peer, channel, port). All protocols count the same messages: message m
/// (from 0) of a connection uses place m % kFifoDepth of whichever protocol it is sent by, and is not written
/// before message m - kFifoDepth was read (head). Pointers are null until the connection is made.
///
///   sender's memory                     receiver's memory
///   sent (m, its own)                   received (its own)
///   head   <---- written by receiver    tail, bytes   <---- written by sender (Simple)
///                                       slots, linesLL, linesLL128   <---- written by sender
struct Sender {
  std::byte* slots = nullptr;  // kFifoDepth * Comm::slotBytes
  LineLL* linesLL = nullptr;   // kFifoDepth * Comm::linesOfSlotLL
  LineLL128* linesLL128 = nullptr;
  MessageTail* tail = nullptr;
  const uint64_t* head = nullptr;  // messages that the receiver has done with
  uint64_t* sent = nullptr;
};
struct Receiver {
  const std::byte* slots = nullptr;
  const LineLL* linesLL = nullptr;
  const LineLL128* linesLL128 = nullptr;
  const MessageTail* tail = nullptr;
  uint64_t* head = nullptr;
  uint64_t* received = nullptr;
};

/// Addresses of a call's buffers, written into a peer's memory when a call begins whose program uses peers'
/// buffers. It needs no lock and no second copy: the schedule's proof says that a peer touches this rank's
/// buffers only after this rank's call began (all lanes write the same before their first step, and release
/// it by the first signal), and that this rank's call does not end before all peers who touch them are done.
struct alignas(16) Board {
  uint64_t input = 0;
  uint64_t output = 0;
};

/// Where things lie in the memory that every rank makes visible to the others. Offsets in bytes.
struct SegmentLayout {
  uint32_t ranks = 1;
  uint32_t channels = 1;
  uint64_t scratchHalfBytes = 0;

  constexpr uint64_t pair(uint32_t channel, uint32_t flag, uint32_t rank) const {
    return (static_cast<uint64_t>(channel) * kFlags + flag) * ranks + rank;
  }
  constexpr uint64_t flagCount() const { return static_cast<uint64_t>(channels) * kFlags * ranks; }
  /// uint64_t: raises of `flag` by rank `from`; written by `from` alone.
  constexpr uint64_t flag(uint32_t channel, uint32_t number, uint32_t from) const {
    return pair(channel, number, from) * 8;
  }
  /// uint64_t, own use: raises of rank `from`'s flag that waits here consumed.
  constexpr uint64_t consumed(uint32_t channel, uint32_t number, uint32_t from) const {
    return (flagCount() + pair(channel, number, from)) * 8;
  }
  /// uint64_t, own use: how often this rank raised `number` of rank `to`.
  constexpr uint64_t raised(uint32_t channel, uint32_t number, uint32_t to) const {
    return (2 * flagCount() + pair(channel, number, to)) * 8;
  }
  /// ChannelState, own use.
  constexpr uint64_t channelState(uint32_t channel) const {
    return roundUp(3 * flagCount() * 8, 128) + static_cast<uint64_t>(channel) * 64;
  }
  /// Board of rank `from`, written by it.
  constexpr uint64_t board(uint32_t channel, uint32_t from) const {
    return roundUp(channelState(channels), 128) +
           (static_cast<uint64_t>(channel) * ranks + from) * sizeof(Board);
  }
  /// Two halves of scratchHalfBytes. Shared: peers read and write it; private: own use.
  constexpr uint64_t sharedScratch(uint32_t channel) const {
    return roundUp(board(channels, 0), 4096) + static_cast<uint64_t>(channel) * 2 * scratchHalfBytes;
  }
  constexpr uint64_t privateScratch(uint32_t channel) const {
    return sharedScratch(channels) + static_cast<uint64_t>(channel) * 2 * scratchHalfBytes;
  }
  constexpr uint64_t bytes() const { return roundUp(privateScratch(channels), 4096); }

  static constexpr uint64_t roundUp(uint64_t value, uint64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
  }
};

/// What a channel remembers between calls. Lanes read it when they begin; the last lane of a call to end
/// advances it.
struct alignas(64) ChannelState {
  uint64_t sharedSlices = 0;  // slice runs so far of programs with shared scratch: its parity
  uint32_t lanesEnded = 0;    // of the running call
};

// ---- reports
// ------------------------------------------------------------------------------------------------

enum class WaitFor : uint32_t { nothing, data, room, signal };

/// Where a block stands. Written only once a wait has lasted long, so it costs nothing while things move.
struct alignas(64) Position {
  uint32_t waits = 0;  // WaitFor; 0: it moves, or ended
  int32_t peer = -1;
  uint32_t call = 0;
  uint32_t channel = 0;
  uint32_t lane = 0;
  uint32_t step = 0;  // Step::number
  uint32_t iteration = 0;
  uint32_t flag = 0;
  uint64_t slice = 0;
};
constexpr uint32_t kMostPositions = 256;

enum class ErrorCode : uint32_t { none, wrongSize };

/// In host memory that the device can write, one a rank. The first error stays.
struct Report {
  uint32_t error = 0;  // ErrorCode; written last
  int32_t peer = -1;
  uint32_t channel = 0;
  uint32_t lane = 0;
  uint32_t step = 0;
  uint32_t claimed = 0;  // by the thread that writes the error
  uint64_t got = 0;
  uint64_t expected = 0;
  Position positions[kMostPositions];  // by block of the grid
};

// ---- a launch
// -----------------------------------------------------------------------------------------------

/// A rank of a communicator, in its device's memory.
struct Comm {
  int32_t rank = 0;
  int32_t ranks = 1;
  uint64_t slotBytes = 0;      // Simple, a multiple of 64
  uint32_t linesOfSlotLL = 0;  // a slot carries that many times kDataLL bytes
  uint32_t linesOfSlotLL128 = 0;
  SegmentLayout layout;
  std::byte* const* segments = nullptr;  // by rank, as seen from this device
  const Sender* senders = nullptr;       // [channel][port][peer]: linkIndex()
  const Receiver* receivers = nullptr;
  /// In host memory: nonzero ends every wait; the kernel then leaves at once. (The communicator is unusable
  /// from there on: counters are not kept.)
  const uint32_t* abort = nullptr;
  Report* report = nullptr;

  constexpr uint64_t linkIndex(uint32_t channel, uint32_t port, uint32_t peer) const {
    return (static_cast<uint64_t>(channel) * kPorts + port) * static_cast<uint64_t>(ranks) + peer;
  }
};

/// tutti::Reduction.
enum class Op : uint8_t { sum, prod, max, min };

/// One call. Channel c of `channels` handles its share of every block, on connections of channel c.
struct Call {
  const Program* program = nullptr;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  uint64_t count = 0;  // elements per block
  uint64_t sliceElements = 1;
  uint64_t slices = 1;
  /// Where blocks differ: elements, by block, in device memory; else null.
  const uint64_t* blockCounts = nullptr;
  const uint64_t* blockOffsets = nullptr;
  /// The operator's scalar, of the call's type, read when the kernel runs; null: `scale`.
  const void* scalar = nullptr;
  uint64_t scale = 0;  // bits of a double (floating types), or of the integer
  uint64_t divisor = 1;
  uint32_t firstBlock = 0;  // of the grid
  /// Call that the same blocks run after this one; 0: none. Calls of a chain have one lane each, and the
  /// chain as many blocks as the widest has channels.
  uint32_t next = 0;
  uint16_t channels = 1;
  uint16_t lanes = 1;
  Op op = Op::sum;
  uint8_t hasScale = 0;
  uint8_t reserved[2] = {};
};

constexpr uint32_t kInlineCalls = 8;

/// The kernel's only argument. Calls 0 .. heads-1 own blocks of the grid, in ascending order of firstBlock;
/// the others are reached through `next`.
struct LaunchArguments {
  const Comm* comm = nullptr;
  const Call* moreCalls = nullptr;  // all calls, in device memory, when they are more than kInlineCalls
  uint32_t calls = 0;
  uint32_t heads = 0;
  Call inlineCalls[kInlineCalls];
};
static_assert(sizeof(LaunchArguments) <= 4096, "every driver passes 4 KiB of arguments");

}  // namespace tutti::device
