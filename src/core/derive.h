// Communicators made from others: split, shrink, grow.
#pragma once

#include "base/status.h"
#include "nccl.h"

namespace tutti {

/// Ranks with equal colors form a communicator, ordered by key, then by rank.
/// @param config null: the parent's settings
Status splitComm(ncclComm_t comm, int color, int key, ncclComm_t* newComm, const ncclConfig_t* config);
/// The ranks that are not excluded form a communicator; only they call.
Status shrinkComm(ncclComm_t comm, const int* excluded, int excludedCount, ncclComm_t* newComm,
                  const ncclConfig_t* config, int flags);
/// An id with which new ranks can join the ranks of `comm`.
Result<ncclUniqueId> growId(ncclComm_t comm);
/// Called by the ranks of `comm` (`rank` their own, or -1; `id` on one of them, null on the others), and by
/// new ranks
/// (`comm` null).
Status growComm(ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank, ncclComm_t* newComm,
                const ncclConfig_t* config);

}  // namespace tutti
