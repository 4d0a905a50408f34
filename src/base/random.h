// Random bytes that others cannot guess.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace tutti {

/// Fills the buffer from the kernel's generator (getrandom(2), or /dev/urandom where a sandbox forbids it).
/// False when neither works; there is no weaker fallback, since secrets are made from these bytes.
bool tryRandomBytes(void* buffer, size_t bytes);

inline Status randomBytes(void* buffer, size_t bytes) {
  if (tryRandomBytes(buffer, bytes)) return Status::ok();
  return {ncclSystemError, "no random numbers: neither getrandom(2) nor /dev/urandom works"};
}
inline Result<uint64_t> randomU64() {
  uint64_t value = 0;
  TUTTI_TRY(randomBytes(&value, sizeof value));
  return value;
}

}  // namespace tutti
