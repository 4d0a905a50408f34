// What tutti/tutti.h adds to the NCCL API.
#include "tutti/tutti.h"

#include "api/entry.h"
#include "core/memory.h"

using namespace tutti;

extern "C" {

ncclResult_t tuttiStreamSynchronize(cudaStream_t stream) {
  return entry("tuttiStreamSynchronize", [&] { return synchronizeStream(stream); });
}

}  // extern "C"
