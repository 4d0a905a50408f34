// Writes flattened programs (base/device_program.h) by hand, step by step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/device_program.h"

namespace tutti::device {

/// Segments of a buffer: the first is `first`, of `segments` in all.
Location placeIn(BufferKind buffer, Affine first, int32_t segments = 1);
/// The same of rank `rank`.
Location placeIn(BufferKind buffer, Affine first, int32_t segments, Affine rank);

class LaneText {
 public:
  /// Steps added from here on repeat.
  LaneText& loop(int32_t iterations);
  /// Steps move `pieces` data segments from `size` on.
  Step& send(int32_t peer, Location source, int32_t pieces = 1, uint16_t port = 0);
  Step& receive(int32_t peer, Location destination, int32_t pieces = 1, uint16_t port = 0);
  /// Any other kind; the caller sets what differs from a step of one piece without messages.
  Step& step(StepKind kind, int32_t pieces = 1);
  Step& signal(std::vector<int32_t> ranks, uint16_t flag = 0);
  Step& wait(std::vector<int32_t> ranks, uint16_t flag = 0);
  void sendsTo(Step& step, int32_t peer, uint16_t port = 0);
  void receivesFrom(Step& step, int32_t peer, uint16_t port = 0);
  /// One a rank of the iteration.
  void receivesFromEach(Step& step, const std::vector<int32_t>& peers);
  void readsFrom(Step& step, Location source);
  void writesTo(Step& step, Location destination);
  void readsTeam(Step& step, const std::vector<int32_t>& ranks);
  void writesTeam(Step& step, const std::vector<int32_t>& ranks);

 private:
  friend class ProgramText;
  uint16_t linkTo(int32_t peer, uint16_t port, bool sends);
  uint32_t addRanks(const std::vector<int32_t>& ranks);
  std::vector<Block> blocks_;
  std::vector<Step> steps_;
  std::vector<Link> links_;
  std::vector<uint16_t> linkNumbers_;
  std::vector<int32_t> ranks_;
};

class ProgramText {
 public:
  ProgramText(int32_t rank, int32_t ranks);
  /// Fields that no step tells: parts, blocks, scratch, ...
  Program head;
  /// Stays valid while lanes are added.
  LaneText& lane();
  /// Head and arrays.
  std::vector<std::byte> bytes() const;
  uint32_t mostLinks() const;

 private:
  std::vector<std::unique_ptr<LaneText>> lanes_;
};

}  // namespace tutti::device
