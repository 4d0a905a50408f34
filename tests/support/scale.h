// How much data a test moves: ThreadSanitizer makes every access some ten times slower.
#pragma once

namespace tutti::test {

#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

/// `usual`, or `small` under ThreadSanitizer. For volumes and repetitions, never for what is checked.
template <typename T>
constexpr T scaled(T usual, T small) {
  return kThreadSanitizer ? small : usual;
}

}  // namespace tutti::test
