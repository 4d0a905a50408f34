// Buffers that the user registered with ncclCommRegister.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "base/status.h"

namespace tutti {

/// Registered ranges of one communicator. Memory of ncclMemAlloc and of the host runtime can be mapped by
/// peers without being registered; registration is the user's promise that the range stays valid, and is
/// checked at deregistration. Thread-safe.
class Registrations {
 public:
  /// The handle is a value of this object and never null.
  Result<void*> add(void* buffer, size_t bytes);
  Status remove(void* handle);

 private:
  struct Range {
    void* buffer;
    size_t bytes;
  };
  std::mutex mutex_;
  std::map<void*, std::unique_ptr<Range>> ranges_;
};

}  // namespace tutti
