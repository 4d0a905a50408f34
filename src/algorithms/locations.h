// Short names for places in the own buffers, for generators.
#pragma once

#include "algorithms/schedule.h"

namespace tutti::at {

/// `count` segments of this rank's buffer, from `segment` on by `pattern`.
constexpr Location input(Affine segment, int32_t count = 1, Pattern pattern = {}) {
  return {Buffer::input, segment, count, kSelf, pattern};
}
constexpr Location output(Affine segment, int32_t count = 1, Pattern pattern = {}) {
  return {Buffer::output, segment, count, kSelf, pattern};
}
constexpr Location scratch(Affine segment, int32_t count = 1, Pattern pattern = {}) {
  return {Buffer::scratch, segment, count, kSelf, pattern};
}
/// The same place in the memory of rank `owner`.
constexpr Location of(Location location, Affine owner) {
  location.rank = owner;
  return location;
}

}  // namespace tutti::at
