#include "hostrt/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
extern "C" {
void __asan_poison_memory_region(void const volatile*, size_t);
void __asan_unpoison_memory_region(void const volatile*, size_t);
}
#endif

namespace tutti::hostrt {
namespace {

/// AddressSanitizer then reports who uses memory of an arena that is not allocated.
void forbid([[maybe_unused]] std::byte* begin, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  if (bytes > 0) __asan_poison_memory_region(begin, bytes);
#endif
}
void permit([[maybe_unused]] std::byte* begin, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  if (bytes > 0) __asan_unpoison_memory_region(begin, bytes);
#endif
}

/// From this size on a hole's pages go back to the system when it is freed: cheaper to fault in again than to
/// keep.
constexpr size_t kReturnBytes = size_t{1} << 20;

uint64_t nextFileId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

size_t roundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Null with errno set.
std::byte* mapShared(int fd, size_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
}

void closeKeepingErrno(int fd) {
  const int error = errno;
  ::close(fd);
  errno = error;
}

}  // namespace

Arena::Arena(int device, int fd, std::byte* base, size_t bytes)
    : device_(device), fd_(fd), base_(base), bytes_(bytes), fileId_(nextFileId()) {}

std::unique_ptr<Arena> Arena::create(int device, size_t bytes) {
  bytes = roundUp(bytes, static_cast<size_t>(::sysconf(_SC_PAGESIZE)));
  const int fd = ::memfd_create("tutti-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return nullptr;
  std::byte* base = nullptr;
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0 || !(base = mapShared(fd, bytes))) {
    closeKeepingErrno(fd);
    return nullptr;
  }
  // Nobody who is handed the file may shorten it: that would make every access of others fault.
  ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  // Takes effect where the administrator allows huge pages for shared memory on request.
  if (bytes >= size_t{2} << 20) ::madvise(base, bytes, MADV_HUGEPAGE);
  std::unique_ptr<Arena> arena(new Arena(device, fd, base, bytes));
  arena->holes_.emplace(0, bytes);
  forbid(base, bytes);
  return arena;
}

std::unique_ptr<Arena> Arena::import(int device, int fd, size_t offset, size_t bytes) {
  const off_t length = ::lseek(fd, 0, SEEK_END);
  std::byte* base = nullptr;
  if (length < 0 || static_cast<size_t>(length) < offset || static_cast<size_t>(length) - offset < bytes) {
    errno = EINVAL;
  } else {
    base = mapShared(fd, static_cast<size_t>(length));
  }
  if (!base) {
    closeKeepingErrno(fd);
    return nullptr;
  }
  std::unique_ptr<Arena> arena(new Arena(device, fd, base, static_cast<size_t>(length)));
  arena->allocations_.emplace(offset,
                              Allocation{.bytes = bytes, .reserved = bytes, .kind = MemoryKind::imported});
  return arena;
}

Arena::~Arena() {
  permit(base_, bytes_);
  ::munmap(base_, bytes_);
  ::close(fd_);
}

std::optional<size_t> Arena::allocate(const Allocation& allocation, bool zeroed) {
  auto best = holes_.end();
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole)
    if (hole->second >= allocation.reserved && (best == holes_.end() || hole->second < best->second))
      best = hole;
  if (best == holes_.end()) return std::nullopt;

  const auto [offset, size] = *best;
  allocations_.emplace(offset, allocation);
  if (size > allocation.reserved) {
    auto node = holes_.extract(best);  // keeps the node: nothing can fail after the allocation is entered
    node.key() = offset + allocation.reserved;
    node.mapped() = size - allocation.reserved;
    holes_.insert(std::move(node));
  } else {
    holes_.erase(best);
  }
  permit(base_ + offset, allocation.reserved);
  if (zeroed && offset < touched_ &&
      (allocation.reserved < kReturnBytes || !returnPages(offset, allocation.reserved)))
    std::memset(base_ + offset, 0, std::min(allocation.reserved, touched_ - offset));
  touched_ = std::max(touched_, offset + allocation.reserved);
  if (allocation.reserved > allocation.bytes)
    forbid(base_ + offset + allocation.bytes, allocation.reserved - allocation.bytes);
  return offset;
}

bool Arena::returnPages(size_t offset, size_t bytes) {
  return ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                     static_cast<off_t>(bytes)) == 0;
}

void Arena::release(size_t offset) {
  const auto found = allocations_.find(offset);
  if (found == allocations_.end()) return;
  const size_t size = found->second.reserved;
  // What another process allocated is its to give back.
  if (size >= kReturnBytes && found->second.kind != MemoryKind::imported) returnPages(offset, size);
  forbid(base_ + offset, size);
  auto [hole, isNew] = holes_.emplace(offset, size);
  (void)isNew;
  allocations_.erase(found);
  if (const auto next = std::next(hole); next != holes_.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    holes_.erase(next);
  }
  if (hole == holes_.begin()) return;
  if (const auto previous = std::prev(hole); previous->first + previous->second == hole->first) {
    previous->second += hole->second;
    holes_.erase(hole);
  }
}

const std::pair<const size_t, Allocation>* Arena::find(size_t offset) const {
  auto next = allocations_.upper_bound(offset);
  if (next == allocations_.begin()) return nullptr;
  const auto& entry = *std::prev(next);
  // An allocation of 0 bytes does not exist; the rounding after the last byte belongs to nobody.
  return offset - entry.first < entry.second.bytes ? &entry : nullptr;
}

}  // namespace tutti::hostrt
