// Finds the host runtime: the table of functions that the library uses where there is no GPU.
#pragma once

#include "base/host_runtime.h"
#include "base/status.h"

namespace tutti {

/// The process's host runtime. One that is loaded already (the program is linked to lib/host/libcudart.so.13)
/// is found by its symbol; else libtutti_hostrt.so.1 is opened: from TUTTI_HOST_RUNTIME where that is set,
/// else from the folder host/ beside the library that contains this function (libnccl.so.2), or from
/// ../lib/host where that is a program (tests in a build tree). It stays loaded. The answer, also a failure,
/// is kept. Thread-safe. Errors name the paths tried and what the loader said. The table may be of an earlier
/// release and lack the functions for drivers: `size` tells.
/// In a process that runs on GPUs (see device_world.h) there is none: an error.
Result<const tuttiHostRuntime_v1*> hostTable();
/// The program is linked to the host runtime, or has opened it.
bool hostRuntimeIsLoaded();

}  // namespace tutti
