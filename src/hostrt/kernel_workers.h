// Threads that run the blocks of kernels.
#pragma once

#include <memory>

#include "hostrt/kernel_block.h"

namespace tutti::hostrt {

/// An idle worker, or a new one, calls runBlocks(run). False when the system has no thread left.
bool giveToBlockWorker(KernelRun& run);
/// Of the calling thread; made on first use.
BlockRunner& threadRunner();
/// In a forked child, where no worker is.
void forgetBlockWorkers();

}  // namespace tutti::hostrt
