// Threads that run the queues of streams.
#pragma once

#include "hostrt/stream.h"

namespace tutti::hostrt {

/// Lets a worker run the stream's queue until it is empty. The caller has made the stream active. Takes an
/// idle worker or starts one (work may block, so every active stream has its own); when the system refuses a
/// thread, runs the queue in the calling thread. A worker that had nothing to do for a few seconds ends.
void giveToWorker(Stream& stream);
/// Starts a detached thread with all signals blocked: the program's handlers run on the program's threads.
bool startDetached(void* (*body)(void*), void* argument);
/// In a forked child, where no worker is.
void forgetWorkers();

}  // namespace tutti::hostrt
