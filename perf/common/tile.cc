#include "common/tile.h"

#include <algorithm>
#include <cstring>

namespace tutti::perf {
namespace {

/// Calls visit(offset in the tile, elements done before, length) for the contiguous pieces of the range.
template <typename Visit>
void forPieces(size_t period, uint64_t first, size_t count, Visit visit) {
  size_t done = 0;
  while (done < count) {
    const size_t offset = (first + done) % period;
    const size_t length = std::min(count - done, period - offset);
    visit(offset, done, length);
    done += length;
  }
}

void store(std::byte* target, uint64_t bits, int bytes) {
  std::memcpy(target, &bits, static_cast<size_t>(bytes));  // little endian, as NCCL's platforms are
}

/// Rounded up, so that growing sizes rebuild a tile a few times only.
size_t roundedTileSize(size_t elements) {
  size_t size = 64;
  while (size < elements && size < Tile::kPeriod) size *= 4;
  return std::min(size, Tile::kPeriod);
}

}  // namespace

void Tile::write(std::byte* target, uint64_t first, size_t count) const {
  const auto width = static_cast<size_t>(elementBytes_);
  // A short tile is only ever asked for elements that it has: its period is kPeriod all the same.
  forPieces(kPeriod, first, count, [&](size_t offset, size_t done, size_t length) {
    std::memcpy(target + done * width, bytes_.data() + offset * width, length * width);
  });
}

uint64_t Tile::countWrong(const std::byte* data, uint64_t first, size_t count) const {
  const auto width = static_cast<size_t>(elementBytes_);
  uint64_t wrong = 0;
  forPieces(kPeriod, first, count, [&](size_t offset, size_t done, size_t length) {
    const std::byte* got = data + done * width;
    const std::byte* want = bytes_.data() + offset * width;
    if (std::memcmp(got, want, length * width) == 0) return;
    for (size_t i = 0; i < length; ++i)
      wrong += std::memcmp(got + i * width, want + i * width, width) != 0 ? 1 : 0;
  });
  return wrong;
}

std::shared_ptr<const Tile> TileCache::get(const Pattern& pattern, int which, size_t elements) {
  const std::lock_guard lock(mutex_);
  const Key key(pattern.type().nccl, pattern.op(), pattern.ranks());
  if (key != key_) {
    tiles_.clear();
    key_ = key;
  }
  const size_t needed = std::min(elements, Tile::kPeriod);
  auto found = tiles_.find(which);
  if (found == tiles_.end() || found->second->elements() < needed) {
    const size_t size = roundedTileSize(needed);
    if (pattern.op() == Operator::none)
      tiles_[which] = buildMoved(pattern, which, size);
    else
      build(pattern, size);
    found = tiles_.find(which);
  }
  return found->second;
}

std::shared_ptr<const Tile> TileCache::buildMoved(const Pattern& pattern, int rank, size_t elements) {
  const int width = pattern.type().bytes;
  std::vector<std::byte> bytes(elements * static_cast<size_t>(width));
  for (size_t i = 0; i < elements; ++i)
    store(bytes.data() + i * static_cast<size_t>(width), pattern.moved(i, rank), width);
  return std::make_shared<const Tile>(std::move(bytes), width);
}

void TileCache::build(const Pattern& pattern, size_t elements) {
  const int width = pattern.type().bytes;
  const int ranks = pattern.ranks();
  std::vector<std::vector<std::byte>> bytes(static_cast<size_t>(ranks) + 1);
  for (auto& one : bytes) one.resize(elements * static_cast<size_t>(width));
  std::vector<uint64_t> inputs(static_cast<size_t>(ranks));
  for (size_t i = 0; i < elements; ++i) {
    uint64_t result = 0;
    pattern.element(i, inputs, result);
    const size_t offset = i * static_cast<size_t>(width);
    for (int rank = 0; rank < ranks; ++rank) store(bytes[rank].data() + offset, inputs[rank], width);
    store(bytes[ranks].data() + offset, result, width);
  }
  for (int rank = 0; rank < ranks; ++rank)
    tiles_[rank] = std::make_shared<const Tile>(std::move(bytes[rank]), width);
  tiles_[kResult] = std::make_shared<const Tile>(std::move(bytes[ranks]), width);
}

}  // namespace tutti::perf
