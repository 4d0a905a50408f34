// Copies and fills, in all directions: every byte is in this machine's memory, so they differ only in when
// the caller may go on.
//
//   source or destination           on an idle stream       on a busy stream
//   memory of the runtime           small: in the caller;   queued
//                                   large: queued
//   pageable source                 in the caller           copied aside at once, then queued: the caller may
//   change
//                                                           the source when the call returns, as in CUDA
//   pageable destination            in the caller           queued, and the call waits for it, as in CUDA
#include <cstring>
#include <memory>

#include "hostrt/capture.h"
#include "hostrt/copy.h"
#include "hostrt/device.h"
#include "hostrt/log.h"
#include "hostrt/memory.h"

namespace tutti::hostrt {
namespace {

/// Up to here a copy costs less than waking a worker.
constexpr size_t kInlineBytes = size_t{256} << 10;

/// The bytes from the first to behind the last one touched; false when that overflows.
bool span(size_t width, size_t height, size_t depth, size_t pitch, size_t slice, size_t* bytes) {
  size_t rows = 0;
  size_t slices = 0;
  return !__builtin_mul_overflow(pitch, height - 1, &rows) &&
         !__builtin_mul_overflow(slice, depth - 1, &slices) && !__builtin_add_overflow(rows, slices, bytes) &&
         !__builtin_add_overflow(*bytes, width, bytes);
}

/// Rows of elements of 2 or 4 bytes; those of single bytes are memset.
void fillRow(std::byte* row, const Fill& fill) {
  if (fill.elementBytes == 1) {
    std::memset(row, static_cast<int>(fill.value), fill.width);
    return;
  }
  for (size_t x = 0; x < fill.width; x += fill.elementBytes)
    std::memcpy(row + x, &fill.value, fill.elementBytes);
}

enum class Side : uint8_t { any, runtime };

/// Checks that memory which the runtime knows is not left, and that a device side is memory that it knows.
cudaError_t checkSide(const char* name, const void* pointer, size_t bytes, Side side, bool* isPageable) {
  if (!pointer) return cudaErrorInvalidValue;
  const MemoryInfo info = memory().find(pointer);
  *isPageable = info.type == MemoryInfo::Type::unregistered;
  if (*isPageable) {
    if (side == Side::any) return cudaSuccess;
    explain("copy or fill: the {} {} is not memory of a device", name, fmt::ptr(pointer));
    return cudaErrorInvalidValue;
  }
  const auto offset = static_cast<size_t>(static_cast<const std::byte*>(pointer) - info.base);
  // Host registrations of neighbouring ranges are separate entries; a copy may cross them.
  if (info.registered || bytes <= info.bytes - offset) return cudaSuccess;
  explain("copy or fill: {} bytes from the {} {}, but its allocation ends after {}", bytes, name,
          fmt::ptr(pointer), info.bytes - offset);
  return cudaErrorInvalidValue;
}

/// The source's bytes, packed, until the queued copy has run.
void enqueueStaged(Stream& stream, const Copy& copy) {
  auto bytes = std::shared_ptr<std::byte[]>(new std::byte[copy.width * copy.height * copy.depth]);
  Copy in = copy;
  in.dst = bytes.get();
  in.dstPitch = copy.width;
  in.dstSlice = copy.width * copy.height;
  runCopy(in);
  Copy out = copy;
  out.src = bytes.get();
  out.srcPitch = in.dstPitch;
  out.srcSlice = in.dstSlice;
  stream.enqueue({{}, [bytes, out] { runCopy(out); }, {}});
}

/// The sides of a copy that pageable memory is on.
struct Pageable {
  bool dst = false;
  bool src = false;
};

bool isEmpty(size_t width, size_t height, size_t depth) { return width == 0 || height == 0 || depth == 0; }

cudaError_t check(const Copy& copy, cudaMemcpyKind kind, Pageable* pageable) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (isEmpty(copy.width, copy.height, copy.depth)) return cudaSuccess;
  if ((copy.height > 1 && (copy.dstPitch < copy.width || copy.srcPitch < copy.width)))
    return cudaErrorInvalidPitchValue;
  size_t dstBytes = 0;
  size_t srcBytes = 0;
  if (!span(copy.width, copy.height, copy.depth, copy.dstPitch, copy.dstSlice, &dstBytes) ||
      !span(copy.width, copy.height, copy.depth, copy.srcPitch, copy.srcSlice, &srcBytes))
    return cudaErrorInvalidValue;
  const bool toDevice = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool fromDevice = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (const cudaError_t error =
          checkSide("destination", copy.dst, dstBytes, toDevice ? Side::runtime : Side::any, &pageable->dst))
    return error;
  return checkSide("source", copy.src, srcBytes, fromDevice ? Side::runtime : Side::any, &pageable->src);
}

}  // namespace

void runCopy(const Copy& copy) {
  const size_t packed = copy.width;
  const bool isFlat =
      (copy.height == 1 || (copy.dstPitch == packed && copy.srcPitch == packed)) && copy.depth == 1;
  if (isFlat) {
    std::memmove(copy.dst, copy.src, copy.width * copy.height);
    return;
  }
  for (size_t z = 0; z < copy.depth; ++z)
    for (size_t y = 0; y < copy.height; ++y)
      std::memmove(copy.dst + z * copy.dstSlice + y * copy.dstPitch,
                   copy.src + z * copy.srcSlice + y * copy.srcPitch, copy.width);
}

void runFill(const Fill& fill) {
  if (fill.depth == 1 && (fill.height == 1 || fill.pitch == fill.width)) {
    Fill flat = fill;
    flat.width = fill.width * fill.height;
    fillRow(fill.dst, flat);
    return;
  }
  for (size_t z = 0; z < fill.depth; ++z)
    for (size_t y = 0; y < fill.height; ++y) fillRow(fill.dst + z * fill.slice + y * fill.pitch, fill);
}

cudaError_t checkCopy(const Copy& copy, cudaMemcpyKind kind) {
  Pageable pageable;
  return check(copy, kind, &pageable);
}

cudaError_t checkFill(const Fill& fill) {
  if (isEmpty(fill.width, fill.height, fill.depth)) return cudaSuccess;
  if (fill.height > 1 && fill.pitch < fill.width) return cudaErrorInvalidPitchValue;
  size_t bytes = 0;
  if (!span(fill.width, fill.height, fill.depth, fill.pitch, fill.slice, &bytes))
    return cudaErrorInvalidValue;
  bool pageable = false;
  return checkSide("destination", fill.dst, bytes, Side::runtime, &pageable);
}

/// For calls that return when the work is done: they cannot be captured, and disturb captures.
static cudaError_t checkWait(Stream& stream, Wait wait) {
  if (wait == Wait::no) return checkUse(stream);
  const cudaError_t error = checkExecutes(stream);
  return error != cudaSuccess ? error : checkUnsafe();
}

cudaError_t submitCopy(cudaStream_t handle, const Copy& copy, cudaMemcpyKind kind, Wait wait) {
  Stream* stream = findStream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = faultOf(*stream); error != cudaSuccess) return error;
  Pageable pageable;
  if (const cudaError_t error = check(copy, kind, &pageable); error != cudaSuccess) return error;
  if (const cudaError_t error = checkWait(*stream, wait); error != cudaSuccess) return error;
  if (isEmpty(copy.width, copy.height, copy.depth)) return cudaSuccess;
  if (isCaptured(*stream)) {
    Copy captured = copy;
    captured.kind = kind;
    return captureWork(*stream, captured);
  }

  const bool mustWait = wait == Wait::yes || pageable.dst;
  const size_t bytes = copy.width * copy.height * copy.depth;
  if ((mustWait || pageable.src || bytes <= kInlineBytes) && stream->tryBegin()) {
    runCopy(copy);
    stream->end();
    return cudaSuccess;
  }
  if (mustWait) {
    waitFor(stream->enqueue({{}, [copy] { runCopy(copy); }, {}}));
    return faultOf(*stream);
  } else if (pageable.src) {
    enqueueStaged(*stream, copy);
  } else {
    stream->enqueue({{}, [copy] { runCopy(copy); }, {}});
  }
  return cudaSuccess;
}

cudaError_t submitFill(cudaStream_t handle, const Fill& fill, Wait wait) {
  Stream* stream = findStream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = faultOf(*stream); error != cudaSuccess) return error;
  if (const cudaError_t error = checkFill(fill); error != cudaSuccess) return error;
  if (const cudaError_t error = checkWait(*stream, wait); error != cudaSuccess) return error;
  if (isEmpty(fill.width, fill.height, fill.depth)) return cudaSuccess;
  if (isCaptured(*stream)) return captureWork(*stream, fill);
  if ((wait == Wait::yes || fill.width * fill.height * fill.depth <= kInlineBytes) && stream->tryBegin()) {
    runFill(fill);
    stream->end();
    return cudaSuccess;
  }
  const Marker done = stream->enqueue({{}, [fill] { runFill(fill); }, {}});
  if (wait == Wait::no) return cudaSuccess;
  waitFor(done);
  return faultOf(*stream);
}

}  // namespace tutti::hostrt
