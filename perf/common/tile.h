// Filling and checking buffers from a pattern, at the speed of memcpy and memcmp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "common/pattern.h"

namespace tutti::perf {

/// The first elements of a pattern's sequence, which repeats after a prime number of them. A prime, so that
/// no chunk or slot of a library (powers of two, multiples of counts) lands on equal data.
class Tile {
 public:
  static constexpr size_t kPeriod = 65521;

  Tile(std::vector<std::byte> bytes, int elementBytes)
      : bytes_(std::move(bytes)), elementBytes_(elementBytes) {}

  size_t elements() const { return bytes_.size() / static_cast<size_t>(elementBytes_); }
  int elementBytes() const { return elementBytes_; }

  /// Writes elements [first, first + count) of the sequence.
  void write(std::byte* target, uint64_t first, size_t count) const;
  /// How many elements of `data` differ from elements [first, first + count) of the sequence. +0 and -0
  /// differ.
  uint64_t countWrong(const std::byte* data, uint64_t first, size_t count) const;

 private:
  std::vector<std::byte> bytes_;
  int elementBytes_;
};

/// Which tile: a rank's contribution, or (kResult) the result of the reduction.
inline constexpr int kResult = -1;

/// Makes tiles on demand and keeps those of the last pattern. Thread-safe.
class TileCache {
 public:
  /// At least min(elements, kPeriod) elements of it.
  std::shared_ptr<const Tile> get(const Pattern& pattern, int which, size_t elements);

 private:
  using Key = std::tuple<ncclDataType_t, Operator, int>;
  void build(const Pattern& pattern, size_t elements);
  std::shared_ptr<const Tile> buildMoved(const Pattern& pattern, int rank, size_t elements);

  std::mutex mutex_;
  Key key_{ncclNumTypes, Operator::none, 0};
  std::map<int, std::shared_ptr<const Tile>> tiles_;
};

}  // namespace tutti::perf
