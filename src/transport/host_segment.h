// The memory that the ranks of one communicator on one host share: where what lies in it, and the mapping.
//
//   +--------+-------+--------+----------------------+-----------------+----------------+---------------+
//   | header | bells | boards | flags                | FIFO controls   | scratch        | FIFO slots    |
//   |        | [r]   | [r][2] | [chan][flag][to][from]| [chan][port]    | [r][chan]      | [chan][port]  |
//   |        |       |        |                      |     [src][dst]  | two halves     |    [src][dst] |
//   +--------+-------+--------+----------------------+-----------------+----------------+---------------+
//
// Every process computes the same offsets from the same shape. The file is sparse: a page costs memory once
// somebody touches it, so tables are ordered such that small calls touch few pages, and may be large.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/memory_file.h"
#include "base/status.h"
#include "transport/doorbell.h"
#include "transport/endpoint.h"
#include "transport/fifo.h"

namespace tutti {

/// What the layout depends on. `ranks` counts the ranks of this host; indices below are local ones.
struct HostSegmentShape {
  int ranks = 1;
  int channels = 1;
  size_t slotBytes = 0;     // multiple of 64
  size_t scratchBytes = 0;  // of one half
};

/// Offsets in a host segment. Pure arithmetic.
class HostSegmentLayout {
 public:
  /// Fails (ncclInvalidArgument) when the shape is malformed or the segment would be beyond any address
  /// space.
  static Result<HostSegmentLayout> make(const HostSegmentShape& shape);

  const HostSegmentShape& shape() const { return shape_; }
  size_t bytes() const { return bytes_; }

  size_t bell(int rank) const { return bells_ + static_cast<size_t>(rank) * sizeof(Doorbell); }
  size_t board(int rank, uint64_t parity) const;
  size_t flag(int from, int to, int channel, int flag) const;
  size_t control(int src, int dst, int channel, int port) const;
  /// Rings start at different cache-line offsets ("colours"): slot starts of all rings would otherwise fall
  /// into the same few cache sets, and small messages, which live at slot starts, would evict each other.
  size_t slots(int src, int dst, int channel, int port) const;
  size_t scratch(int rank, int channel) const;
  size_t scratchEnd(int rank) const { return scratch(rank, shape_.channels); }
  /// Bytes of the slots of one sender in one channel and port, for all receivers: they are one piece.
  size_t slotsOfSender() const { return static_cast<size_t>(shape_.ranks) * ringStride_; }
  /// Where they begin.
  size_t slotsOf(int src, int channel, int port) const {
    return slots_ + ringIndex(src, 0, channel, port) * ringStride_;
  }

 private:
  size_t ringIndex(int src, int dst, int channel, int port) const;

  HostSegmentShape shape_;
  size_t bells_ = 0;
  size_t boards_ = 0;
  size_t flags_ = 0;
  size_t controls_ = 0;
  size_t scratch_ = 0;
  size_t scratchStride_ = 0;
  size_t slots_ = 0;
  size_t ringStride_ = 0;
  size_t bytes_ = 0;
};

/// One posted board entry: written, then published by its sequence number.
struct alignas(64) BoardCell {
  std::atomic<uint64_t> sequence;
  BoardEntry entry;
};

/// A mapping of a host segment in this process. Shared by all ranks of the process that belong to it;
/// unmapped with the last of them. Accessors are thread-safe.
class HostSegment {
 public:
  /// Plain memory, for ranks that all live in this process.
  static Result<std::shared_ptr<HostSegment>> anonymous(const HostSegmentLayout& layout);
  /// A memory file, fresh or received; its length must be the layout's.
  static Result<std::shared_ptr<HostSegment>> inFile(const HostSegmentLayout& layout, MemoryFile file);

  /// A number in the segment's first bytes by which named segments are told apart.
  void setTag(uint64_t tag) { at<std::atomic<uint64_t>>(0)->store(tag, std::memory_order_release); }
  uint64_t tag() const { return at<std::atomic<uint64_t>>(0)->load(std::memory_order_acquire); }

  /// The file that holds the segment (without memory when it is anonymous).
  MemoryFile& file() { return file_; }

  /// Asks for memory of a NUMA node for what a rank (its local index) writes: its scratch, and the slots of
  /// what it sends. As if it had touched them first, but before anybody can.
  void placeRank(int rank, int node);

  ~HostSegment();
  HostSegment(const HostSegment&) = delete;
  HostSegment& operator=(const HostSegment&) = delete;

  const HostSegmentLayout& layout() const { return layout_; }
  Doorbell* bell(int rank) const { return at<Doorbell>(layout_.bell(rank)); }
  BoardCell* board(int rank, uint64_t sequence) const {
    return at<BoardCell>(layout_.board(rank, sequence & 1));
  }
  std::atomic<uint64_t>* flag(int from, int to, int channel, int flag) const {
    return at<std::atomic<uint64_t>>(layout_.flag(from, to, channel, flag));
  }
  FifoControl* control(int src, int dst, int channel, int port) const {
    return at<FifoControl>(layout_.control(src, dst, channel, port));
  }
  std::byte* slots(int src, int dst, int channel, int port) const {
    return base_ + layout_.slots(src, dst, channel, port);
  }
  std::byte* scratch(int rank, int channel) const { return base_ + layout_.scratch(rank, channel); }

 private:
  HostSegment(const HostSegmentLayout& layout, std::byte* base, MemoryFile file)
      : layout_(layout), base_(base), file_(std::move(file)) {}

  // Zeroed memory is the initial state of everything that lies in a segment.
  template <typename T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }

  HostSegmentLayout layout_;
  std::byte* base_;
  MemoryFile file_;
};

/// Finds the segment that another rank of this process made under the same key, or makes it with `make`
/// (other ranks of the process that want the same segment wait meanwhile). Key: a random number that the
/// ranks of a group agreed on.
Result<std::shared_ptr<HostSegment>> shareInProcess(
    uint64_t key, const std::function<Result<std::shared_ptr<HostSegment>>()>& make);

}  // namespace tutti
