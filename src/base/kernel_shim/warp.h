// Shuffles, votes, matches and reductions of a warp.
#pragma once

#include "base/kernel_shim/core.h"

namespace tutti::shim {

inline uint64_t warpCall(WarpOp op, uint32_t mask, uint64_t value, uint32_t argument, uint32_t width,
                         const Place& place) {
  WarpCall call{op, mask, argument, width, value, 0, place};
  Thread& thread = self();
  thread.block->engine->warp(thread, call);
  return call.result;
}

template <class T>
uint64_t bitsOf(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>,
                "a warp exchanges values of up to 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T fromBits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
T shuffle(WarpOp op, unsigned mask, T value, unsigned argument, int width, const Place& place) {
  return fromBits<T>(warpCall(op, mask, bitsOf(value), argument, static_cast<uint32_t>(width), place));
}

}  // namespace tutti::shim

inline void __syncwarp(unsigned mask = 0xffffffffu,
                       tutti::shim::Place place = tutti::shim::here("__syncwarp")) {
  tutti::shim::warpCall(tutti::shim::WarpOp::sync, mask, 0, 0, 32, place);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32,
              tutti::shim::Place place = tutti::shim::here("__shfl_sync")) {
  return tutti::shim::shuffle(tutti::shim::WarpOp::broadcast, mask, value, static_cast<unsigned>(lane), width,
                              place);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 tutti::shim::Place place = tutti::shim::here("__shfl_up_sync")) {
  return tutti::shim::shuffle(tutti::shim::WarpOp::up, mask, value, delta, width, place);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   tutti::shim::Place place = tutti::shim::here("__shfl_down_sync")) {
  return tutti::shim::shuffle(tutti::shim::WarpOp::down, mask, value, delta, width, place);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32,
                  tutti::shim::Place place = tutti::shim::here("__shfl_xor_sync")) {
  return tutti::shim::shuffle(tutti::shim::WarpOp::exclusive, mask, value, static_cast<unsigned>(lanes),
                              width, place);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              tutti::shim::Place place = tutti::shim::here("__ballot_sync")) {
  return static_cast<unsigned>(
      tutti::shim::warpCall(tutti::shim::WarpOp::ballot, mask, predicate != 0, 0, 32, place));
}
inline int __any_sync(unsigned mask, int predicate,
                      tutti::shim::Place place = tutti::shim::here("__any_sync")) {
  return static_cast<int>(
      tutti::shim::warpCall(tutti::shim::WarpOp::any, mask, predicate != 0, 0, 32, place));
}
inline int __all_sync(unsigned mask, int predicate,
                      tutti::shim::Place place = tutti::shim::here("__all_sync")) {
  return static_cast<int>(
      tutti::shim::warpCall(tutti::shim::WarpOp::all, mask, predicate != 0, 0, 32, place));
}
inline unsigned __activemask() { return tutti::shim::block().engine->activeMask(tutti::shim::self()); }

template <class T>
unsigned __match_any_sync(unsigned mask, T value,
                          tutti::shim::Place place = tutti::shim::here("__match_any_sync")) {
  return static_cast<unsigned>(
      tutti::shim::warpCall(tutti::shim::WarpOp::matchAny, mask, tutti::shim::bitsOf(value), 0, 32, place));
}
template <class T>
unsigned __match_all_sync(unsigned mask, T value, int* predicate,
                          tutti::shim::Place place = tutti::shim::here("__match_all_sync")) {
  const auto lanes = static_cast<unsigned>(
      tutti::shim::warpCall(tutti::shim::WarpOp::matchAll, mask, tutti::shim::bitsOf(value), 0, 32, place));
  *predicate = lanes != 0;
  return lanes;
}

#define TUTTI_WARP_REDUCE(name, type, op)                                                                \
  inline type name(unsigned mask, type value, tutti::shim::Place place = tutti::shim::here(#name)) {     \
    return static_cast<type>(                                                                            \
        tutti::shim::warpCall(tutti::shim::WarpOp::op, mask, tutti::shim::bitsOf(value), 0, 32, place)); \
  }
TUTTI_WARP_REDUCE(__reduce_add_sync, unsigned, add)
TUTTI_WARP_REDUCE(__reduce_add_sync, int, add)
TUTTI_WARP_REDUCE(__reduce_min_sync, unsigned, min)
TUTTI_WARP_REDUCE(__reduce_max_sync, unsigned, max)
TUTTI_WARP_REDUCE(__reduce_min_sync, int, minSigned)
TUTTI_WARP_REDUCE(__reduce_max_sync, int, maxSigned)
TUTTI_WARP_REDUCE(__reduce_and_sync, unsigned, bitAnd)
TUTTI_WARP_REDUCE(__reduce_or_sync, unsigned, bitOr)
TUTTI_WARP_REDUCE(__reduce_xor_sync, unsigned, bitXor)
#undef TUTTI_WARP_REDUCE
