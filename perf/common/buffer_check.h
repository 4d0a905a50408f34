// Writes inputs into the ranks' buffers and compares what a collective left there.
#pragma once

#include <cstdint>
#include <vector>

#include "common/collective.h"
#include "common/job.h"
#include "common/outcome.h"
#include "common/pattern.h"

namespace tutti::perf {

/// One kind of call on one rank.
struct Subject {
  RankState* state = nullptr;
  const Pattern* pattern = nullptr;
  CallShape shape;
  int root = 0;
  bool inPlace = false;

  int width() const { return pattern->type().bytes; }
};

/// Where a call reads and writes.
struct Pointers {
  std::byte* send = nullptr;
  std::byte* recv = nullptr;
};
Pointers pointersOf(const Subject& subject, int misalignedElements);

/// Used by one thread. Reaches the buffers only by cudaMemcpy and cudaMemset, so it works for any device.
class BufferCheck {
 public:
  explicit BufferCheck(Job& job) : job_(job), staging_(kStagingBytes) {}

  /// Inputs in place, everything else marked.
  Outcome fill(const Subject& subject);
  /// How many elements are wrong: results, parts that must be untouched, the guard behind the buffer (each
  /// byte of it counts as one), and, for smaller calls, the input.
  Outcome countWrong(const Subject& subject, uint64_t& wrong);

 private:
  static constexpr size_t kStagingBytes = 1u << 20;
  static constexpr int kMark = 0xA5;
  /// Inputs up to this size are checked not to have changed.
  static constexpr size_t kCheckedInputBytes = 4u << 20;

  Outcome write(std::byte* target, const Tile& tile, uint64_t first, size_t count);
  Outcome compare(const std::byte* source, const Tile& tile, uint64_t first, size_t count, uint64_t& wrong);
  Outcome compareMark(const std::byte* source, size_t bytes, uint64_t& wrong);
  std::shared_ptr<const Tile> tileOf(const Subject& subject, int which, size_t end);

  Job& job_;
  std::vector<std::byte> staging_;
};

}  // namespace tutti::perf
