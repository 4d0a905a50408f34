// Reduction operators: the built-in ones and those made by ncclRedOpCreatePreMulSum.
#pragma once

#include <mutex>
#include <vector>

#include "base/status.h"
#include "core/operation.h"

namespace tutti {

/// The operators of one communicator. Thread-safe.
class ReductionOps {
 public:
  explicit ReductionOps(int ranks) : ranks_(ranks) {}

  /// Registers "scale by *scalar, then sum". An immediate scalar is read now, a resident one when a
  /// collective runs.
  Result<ncclRedOp_t> createPreMulSum(const void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence);
  Status destroy(ncclRedOp_t op);
  /// What the executor applies for `op` on elements of `type`; an error when the handle is unknown or was
  /// made for another type.
  Result<OperatorUse> resolve(ncclRedOp_t op, ncclDataType_t type) const;

 private:
  struct Entry {
    bool live = false;
    OperatorUse use;
  };
  const int ranks_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // entry i has the handle ncclNumOps + i; freed entries are used again
};

/// Puts the scalar at `scalar` (one element of spec.type) into spec.
void readScalar(const void* scalar, ReductionSpec& spec);

}  // namespace tutti
