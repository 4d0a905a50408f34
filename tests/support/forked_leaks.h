// For programs whose forked children leave through std::exit(). Include it in one source of the program.
#pragma once

#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
namespace tutti::test {
inline const pid_t kFirstProcess = ::getpid();
}

/// The leak checker asks this before it looks. In a forked child it would take locks of GCC 12's allocator
/// that a thread of the parent may have held at the fork, and wait for ever; the parent is checked as always.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() {
  return ::getpid() == tutti::test::kFirstProcess ? 0 : 1;
}
#endif
