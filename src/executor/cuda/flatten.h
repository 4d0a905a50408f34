// From a schedule to the plain arrays that kernels walk (base/device_program.h).
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "algorithms/schedule.h"
#include "base/device_program.h"
#include "base/status.h"

namespace tutti {

/// The bytes of a device::Program with its arrays, ready to be copied to a device.
class FlatProgram {
 public:
  explicit FlatProgram(std::vector<std::byte> bytes);
  const device::Program& head() const;
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;  // the allocator aligns them to 16
};

/// Pure: the same bytes for the same schedule. Errors (internalError) name lane and step: numbers out of
/// range, more connections in a lane than kMostLinks, a flag that two lanes raise.
Result<FlatProgram> flatten(const Schedule& schedule);

}  // namespace tutti
