// The current device of the calling thread, for a scope.
#pragma once

#include "base/host_runtime.h"

namespace tutti {

/// Makes a device current and restores the one before: the default stream is that of the current device, and
/// for a communicator it means its own device's, whatever device the calling thread works on.
class DeviceScope {
 public:
  DeviceScope(const tuttiHostRuntime_v1& runtime, int device) : runtime_(runtime) {
    if (runtime_.currentDevice(&before_) != 0 || before_ == device) return;
    changed_ = runtime_.setCurrentDevice(device) == 0;
  }
  ~DeviceScope() {
    if (changed_) runtime_.setCurrentDevice(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const tuttiHostRuntime_v1& runtime_;
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace tutti
