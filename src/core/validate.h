// Checks of arguments that every call makes before anything else happens.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "nccl.h"

namespace tutti {

Status checkType(ncclDataType_t type);
Status checkRoot(int root, int ranks);
Status checkPeer(int peer, int ranks);
/// `buffer` may be null only when count is 0. `what` names it in the error ("sendbuff").
Status checkBuffer(const void* buffer, size_t count, const char* what);
/// count elements of `elementBytes`, times `blocks`, must be addressable.
Status checkSize(size_t count, size_t elementBytes, int blocks);

}  // namespace tutti
