#include "transport/host_segment.h"

#include <sys/mman.h>

#include <cerrno>
#include <map>
#include <mutex>

#include "base/affinity.h"

namespace tutti {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
constexpr size_t kColours = 61;  // prime, so that no power-of-two stride of rings falls on one colour
constexpr size_t kLimit = size_t{1} << 46;  // half of a process's address space

constexpr size_t roundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

struct ProcessSegments {
  std::mutex mutex;
  struct Entry {
    std::mutex mutex;
    std::weak_ptr<HostSegment> segment;
  };
  std::map<uint64_t, std::shared_ptr<Entry>> byKey;
};
ProcessSegments& processSegments() {
  static auto* segments = new ProcessSegments;  // never destroyed: endpoints may outlive static destruction
  return *segments;
}

/// Adds count * unit to the running end, page-aligned, and gives the old end. False on overflow.
bool reserve(size_t* end, size_t count, size_t unit, size_t* start) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, unit, &bytes) || bytes > kLimit) return false;
  *start = *end;
  *end = roundUp(*end + bytes, kPage);
  return *end <= kLimit;
}

}  // namespace

Result<HostSegmentLayout> HostSegmentLayout::make(const HostSegmentShape& shape) {
  if (shape.ranks < 1 || shape.channels < 1)
    return invalidArgument("host segment: {} ranks and {} channels, at least 1 needed of both", shape.ranks,
                           shape.channels);
  if (shape.slotBytes == 0 || shape.slotBytes % kLine != 0 || shape.slotBytes > UINT32_MAX)
    return invalidArgument("host segment: slots of {} bytes, must be a multiple of {} below 4 GiB",
                           shape.slotBytes, kLine);
  HostSegmentLayout layout;
  layout.shape_ = shape;
  const auto ranks = static_cast<size_t>(shape.ranks);
  const auto channels = static_cast<size_t>(shape.channels);
  const size_t pairs = ranks * ranks * channels;
  size_t end = kPage;  // header
  layout.scratchStride_ = roundUp(2 * shape.scratchBytes, kPage);
  layout.ringStride_ = roundUp(kFifoSlots * shape.slotBytes + kColours * kLine, kPage);
  const bool fits = shape.scratchBytes < kLimit && reserve(&end, ranks, sizeof(Doorbell), &layout.bells_) &&
                    reserve(&end, 2 * ranks, sizeof(BoardCell), &layout.boards_) &&
                    reserve(&end, pairs * kEndpointFlags, kLine, &layout.flags_) &&
                    reserve(&end, pairs * kEndpointPorts, sizeof(FifoControl), &layout.controls_) &&
                    reserve(&end, ranks * channels, layout.scratchStride_, &layout.scratch_) &&
                    reserve(&end, pairs * kEndpointPorts, layout.ringStride_, &layout.slots_);
  if (!fits)
    return invalidArgument(
        "host segment: {} ranks x {} channels with slots of {} bytes and scratch of {} bytes need more than "
        "{} TiB of address space; use fewer channels or smaller slots",
        shape.ranks, shape.channels, shape.slotBytes, shape.scratchBytes, kLimit >> 40);
  layout.bytes_ = end;
  return layout;
}

size_t HostSegmentLayout::board(int rank, uint64_t parity) const {
  return boards_ + (static_cast<size_t>(rank) * 2 + parity) * sizeof(BoardCell);
}

size_t HostSegmentLayout::flag(int from, int to, int channel, int flag) const {
  const auto ranks = static_cast<size_t>(shape_.ranks);
  const size_t index = ((static_cast<size_t>(channel) * kEndpointFlags + static_cast<size_t>(flag)) * ranks +
                        static_cast<size_t>(to)) *
                           ranks +
                       static_cast<size_t>(from);
  return flags_ + index * kLine;
}

size_t HostSegmentLayout::ringIndex(int src, int dst, int channel, int port) const {
  const auto ranks = static_cast<size_t>(shape_.ranks);
  return ((static_cast<size_t>(channel) * kEndpointPorts + static_cast<size_t>(port)) * ranks +
          static_cast<size_t>(src)) *
             ranks +
         static_cast<size_t>(dst);
}

size_t HostSegmentLayout::control(int src, int dst, int channel, int port) const {
  return controls_ + ringIndex(src, dst, channel, port) * sizeof(FifoControl);
}

size_t HostSegmentLayout::slots(int src, int dst, int channel, int port) const {
  const size_t index = ringIndex(src, dst, channel, port);
  return slots_ + index * ringStride_ + index % kColours * kLine;
}

size_t HostSegmentLayout::scratch(int rank, int channel) const {
  const auto channels = static_cast<size_t>(shape_.channels);
  return scratch_ + (static_cast<size_t>(rank) * channels + static_cast<size_t>(channel)) * scratchStride_;
}

Result<std::shared_ptr<HostSegment>> HostSegment::anonymous(const HostSegmentLayout& layout) {
  // Shared, although nobody else maps it: a fork of the program then does not make every later write a
  // copy-on-write fault, and pages are counted as they are touched (MAP_NORESERVE).
  void* base = ::mmap(nullptr, layout.bytes(), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return systemError(errno, "map {} bytes of (sparse) memory for {} ranks of this process", layout.bytes(),
                       layout.shape().ranks);
  ::madvise(base, layout.bytes(), MADV_DONTDUMP);  // best effort: core dumps without payload
  return std::shared_ptr<HostSegment>(new HostSegment(layout, static_cast<std::byte*>(base), {}));
}

Result<std::shared_ptr<HostSegment>> HostSegment::inFile(const HostSegmentLayout& layout, MemoryFile file) {
  if (file.size() != layout.bytes())
    return internalError("host segment: the file has {} bytes, {} expected", file.size(), layout.bytes());
  ::madvise(file.data(), file.size(), MADV_DONTDUMP);  // best effort, as above
  std::byte* base = file.data();
  return std::shared_ptr<HostSegment>(new HostSegment(layout, base, std::move(file)));
}

void HostSegment::placeRank(int rank, int node) {
  const size_t scratchBegin = layout_.scratch(rank, 0);
  preferNode(base_ + scratchBegin, layout_.scratchEnd(rank) - scratchBegin, node);
  for (int channel = 0; channel < layout_.shape().channels; ++channel)
    for (int port = 0; port < kEndpointPorts; ++port)
      preferNode(base_ + layout_.slotsOf(rank, channel, port), layout_.slotsOfSender(), node);
}

HostSegment::~HostSegment() {
  if (!file_) ::munmap(base_, layout_.bytes());
}

Result<std::shared_ptr<HostSegment>> shareInProcess(
    uint64_t key, const std::function<Result<std::shared_ptr<HostSegment>>()>& make) {
  ProcessSegments& segments = processSegments();
  std::shared_ptr<ProcessSegments::Entry> entry;
  {
    const std::lock_guard lock(segments.mutex);
    // An entry that nobody else holds and whose segment is gone belongs to a communicator that is gone.
    std::erase_if(segments.byKey, [](const auto& known) {
      if (known.second.use_count() != 1) return false;
      const std::lock_guard written(known.second->mutex);  // by a thread that has let go of the entry since
      return known.second->segment.expired();
    });
    auto& known = segments.byKey[key];
    if (!known) known = std::make_shared<ProcessSegments::Entry>();
    entry = known;
  }
  const std::lock_guard lock(entry->mutex);
  if (auto segment = entry->segment.lock()) return segment;
  TUTTI_ASSIGN(auto segment, make());
  entry->segment = segment;
  return segment;
}

}  // namespace tutti
