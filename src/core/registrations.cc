#include "core/registrations.h"

namespace tutti {

Result<void*> Registrations::add(void* buffer, size_t bytes) {
  if (buffer == nullptr) return invalidArgument("register: the buffer is null");
  if (bytes == 0) return invalidArgument("register: the buffer at {} has no bytes", buffer);
  auto range = std::make_unique<Range>(Range{buffer, bytes});
  void* handle = range.get();
  const std::lock_guard lock(mutex_);
  ranges_.emplace(handle, std::move(range));
  return handle;
}

Status Registrations::remove(void* handle) {
  const std::lock_guard lock(mutex_);
  if (ranges_.erase(handle) == 0) {
    return invalidArgument("deregister: {} is not a handle of this communicator, or was deregistered before",
                           handle);
  }
  return Status::ok();
}

}  // namespace tutti
