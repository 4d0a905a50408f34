#include "core/validate.h"

namespace tutti {

Status checkType(ncclDataType_t type) {
  if (type < 0 || type >= ncclNumTypes) {
    return invalidArgument("data type {} does not exist (0..{})", static_cast<int>(type), ncclNumTypes - 1);
  }
  return Status::ok();
}

Status checkRoot(int root, int ranks) {
  if (root < 0 || root >= ranks)
    return invalidArgument("root {} is not a rank of this communicator (0..{})", root, ranks - 1);
  return Status::ok();
}

Status checkPeer(int peer, int ranks) {
  if (peer < 0 || peer >= ranks)
    return invalidArgument("peer {} is not a rank of this communicator (0..{})", peer, ranks - 1);
  return Status::ok();
}

Status checkBuffer(const void* buffer, size_t count, const char* what) {
  if (buffer == nullptr && count != 0) return invalidArgument("{} is null, but the count is {}", what, count);
  return Status::ok();
}

Status checkSize(size_t count, size_t elementBytes, int blocks) {
  const auto limit = static_cast<size_t>(PTRDIFF_MAX) / elementBytes / static_cast<size_t>(blocks);
  if (count > limit) {
    return invalidArgument(
        "count {} is too large: {} blocks of {}-byte elements do not fit the address space", count, blocks,
        elementBytes);
  }
  return Status::ok();
}

}  // namespace tutti
