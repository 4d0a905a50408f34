// Point-to-point messages.
#pragma once

#include "algorithms/schedule.h"

namespace tutti {

/// The part of rank `rank` in one message from `sender` to `receiver`, two ranks of a communicator of
/// `ranks`. Others have no lanes. A message to oneself is a copy. Uses kPointToPointPort, where collectives
/// never send, so a message cannot be taken for a collective's even when the two ranks are in different
/// calls. One round, n bytes.
Schedule sendRecv(int32_t ranks, int32_t rank, int32_t sender, int32_t receiver,
                  int port = kPointToPointPort);

}  // namespace tutti
