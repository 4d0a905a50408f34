#include "core/reduction_ops.h"

#include <cstring>

#include "base/datatype.h"

namespace tutti {
namespace {

template <typename T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

Result<Reduction> builtinReduction(ncclRedOp_t op) {
  switch (op) {
    case ncclSum:
    case ncclAvg:
      return Reduction::sum;
    case ncclProd:
      return Reduction::prod;
    case ncclMax:
      return Reduction::max;
    case ncclMin:
      return Reduction::min;
    default:
      return invalidArgument("reduction operator {} does not exist", static_cast<int>(op));
  }
}

}  // namespace

void readScalar(const void* scalar, ReductionSpec& spec) {
  spec.hasScale = true;
  switch (spec.type) {
    case ncclInt8:
      spec.integerScale = static_cast<uint64_t>(load<int8_t>(scalar));
      break;
    case ncclUint8:
      spec.integerScale = load<uint8_t>(scalar);
      break;
    case ncclInt32:
      spec.integerScale = static_cast<uint64_t>(load<int32_t>(scalar));
      break;
    case ncclUint32:
      spec.integerScale = load<uint32_t>(scalar);
      break;
    case ncclInt64:
    case ncclUint64:
      spec.integerScale = load<uint64_t>(scalar);
      break;
    default:
      spec.scale = toDouble(spec.type, scalar);
      break;
  }
}

Result<ncclRedOp_t> ReductionOps::createPreMulSum(const void* scalar, ncclDataType_t type,
                                                  ncclScalarResidence_t residence) {
  if (scalar == nullptr) return invalidArgument("PreMulSum: the scalar's pointer is null");
  Entry entry;
  entry.live = true;
  entry.use.ownScalar = true;
  entry.use.spec.type = type;
  entry.use.spec.hasScale = true;
  if (residence == ncclScalarHostImmediate) {
    readScalar(scalar, entry.use.spec);
  } else if (residence == ncclScalarDevice) {
    entry.use.residentScalar = scalar;
  } else {
    return invalidArgument("PreMulSum: residence {} is neither device (0) nor host-immediate (1)",
                           static_cast<int>(residence));
  }
  const std::lock_guard lock(mutex_);
  size_t index = 0;
  while (index < entries_.size() && entries_[index].live) ++index;
  if (index == entries_.size()) entries_.emplace_back();
  entries_[index] = entry;
  return static_cast<ncclRedOp_t>(ncclNumOps + index);
}

Status ReductionOps::destroy(ncclRedOp_t op) {
  if (op >= 0 && op < ncclNumOps)
    return invalidArgument("operator {} is built in and cannot be destroyed", static_cast<int>(op));
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(op) - ncclNumOps;
  if (index >= entries_.size() || !entries_[index].live) {
    return invalidArgument("operator {} does not exist on this communicator", static_cast<int>(op));
  }
  entries_[index] = Entry{};
  return Status::ok();
}

Result<OperatorUse> ReductionOps::resolve(ncclRedOp_t op, ncclDataType_t type) const {
  OperatorUse use;
  use.spec.type = type;
  if (op >= 0 && op < ncclNumOps) {
    TUTTI_ASSIGN(use.spec.op, builtinReduction(op));
    if (op == ncclAvg && isFloat(type)) {
      use.spec.hasScale = true;
      use.spec.scale = 1.0 / ranks_;
    } else if (op == ncclAvg) {
      use.spec.divisor = static_cast<uint64_t>(ranks_);
    }
    return use;
  }
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(op) - ncclNumOps;
  if (index >= entries_.size() || !entries_[index].live) {
    return invalidArgument("reduction operator {} does not exist on this communicator", static_cast<int>(op));
  }
  if (entries_[index].use.spec.type != type) {
    return invalidArgument("reduction operator {} was created for {}, but the call's data type is {}",
                           static_cast<int>(op), nameOf(entries_[index].use.spec.type), nameOf(type));
  }
  return entries_[index].use;
}

}  // namespace tutti
