// The calls that steer, and tell, how collectives run: tutti/tutti.h describes them.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "tutti/tutti.h"

namespace tutti {

Status setAlgo(ncclComm_t comm, const char* algo, const char* proto, int channels);
Status queryPlan(ncclComm_t comm, const char* function, size_t count, ncclDataType_t type, int mapped,
                 tuttiPlan_t* plan);
Status lastPlan(ncclComm_t comm, tuttiPlan_t* plan);

}  // namespace tutti
