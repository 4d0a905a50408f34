// FNV-1a: digests that are the same in every process and build. No defence against whoever wants two alike.
#pragma once

#include <cstdint>
#include <type_traits>

namespace tutti {

constexpr uint64_t kFnvStart = 0xcbf29ce484222325;

/// Of the values of a text, or of any range of integers; `hash` continues a digest of what came before.
template <typename Range>
constexpr uint64_t fnv1a(const Range& values, uint64_t hash = kFnvStart) {
  for (const auto value : values)
    hash =
        (hash ^ static_cast<std::make_unsigned_t<std::remove_cv_t<decltype(value)>>>(value)) * 0x100000001b3;
  return hash;
}

}  // namespace tutti
