// cudaMemcpy*, cudaMemset* and their forms for the per-thread default stream (_ptds, _ptsz), in which the
// null stream means the calling thread's own.
#include "hostrt/copy.h"
#include "hostrt/device.h"
#include "hostrt/per_thread.h"

using namespace tutti::hostrt;

namespace {

Copy flat(void* dst, const void* src, size_t bytes) {
  Copy copy;
  copy.dst = static_cast<std::byte*>(dst);
  copy.src = static_cast<const std::byte*>(src);
  copy.width = bytes;
  return copy;
}

Copy plane(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height) {
  Copy copy = flat(dst, src, width);
  copy.dstPitch = dpitch;
  copy.srcPitch = spitch;
  copy.height = height;
  return copy;
}

cudaError_t submit3D(const cudaMemcpy3DParms* p, cudaStream_t stream, Wait wait) {
  Copy copy;
  const cudaError_t error = copyOf(p, &copy);
  return error != cudaSuccess ? error : submitCopy(stream, copy, copy.kind, wait);
}

cudaError_t submit3DPeer(const cudaMemcpy3DPeerParms* p, cudaStream_t stream, Wait wait) {
  if (!p) return cudaErrorInvalidValue;
  if (!findDevice(p->dstDevice) || !findDevice(p->srcDevice)) return cudaErrorInvalidDevice;
  const cudaMemcpy3DParms parameters = {p->srcArray, p->srcPos, p->srcPtr, p->dstArray,
                                        p->dstPos,   p->dstPtr, p->extent, cudaMemcpyDeviceToDevice};
  return submit3D(&parameters, stream, wait);
}

Fill flatFill(void* dst, int value, size_t bytes) {
  Fill fill;
  fill.dst = static_cast<std::byte*>(dst);
  fill.value = static_cast<unsigned char>(value);
  fill.width = bytes;
  return fill;
}

Fill planeFill(void* dst, size_t pitch, int value, size_t width, size_t height) {
  Fill fill = flatFill(dst, value, width);
  fill.pitch = pitch;
  fill.height = height;
  return fill;
}

Fill cubeFill(const cudaPitchedPtr& pointer, int value, const cudaExtent& extent) {
  Fill fill = planeFill(pointer.ptr, pointer.pitch, value, extent.width, extent.height);
  fill.slice = pointer.pitch * pointer.ysize;
  fill.depth = extent.depth;
  return fill;
}

cudaError_t copyBetween(void* dst, int dstDevice, const void* src, int srcDevice, size_t count,
                        cudaStream_t stream, Wait wait) {
  if (!findDevice(dstDevice) || !findDevice(srcDevice)) return cudaErrorInvalidDevice;
  return submitCopy(stream, flat(dst, src, count), cudaMemcpyDeviceToDevice, wait);
}

constexpr cudaStream_t kNull = nullptr;

}  // namespace

namespace tutti::hostrt {

cudaError_t copyOf(const cudaMemcpy3DParms* p, Copy* copy) {
  if (!p) return cudaErrorInvalidValue;
  if (p->srcArray || p->dstArray) return cudaErrorNotSupported;  // no textures, so no arrays
  const auto at = [](const cudaPitchedPtr& pointer, const cudaPos& position) {
    return static_cast<std::byte*>(pointer.ptr) + position.z * pointer.pitch * pointer.ysize +
           position.y * pointer.pitch + position.x;
  };
  if (!p->srcPtr.ptr || !p->dstPtr.ptr) return cudaErrorInvalidValue;
  *copy = plane(at(p->dstPtr, p->dstPos), p->dstPtr.pitch, at(p->srcPtr, p->srcPos), p->srcPtr.pitch,
                p->extent.width, p->extent.height);
  copy->dstSlice = p->dstPtr.pitch * p->dstPtr.ysize;
  copy->srcSlice = p->srcPtr.pitch * p->srcPtr.ysize;
  copy->depth = p->extent.depth;
  copy->kind = p->kind;
  return cudaSuccess;
}

}  // namespace tutti::hostrt

extern "C" {

cudaError_t cudaMemcpy(void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
  return apiCall([&] { return submitCopy(kNull, flat(dst, src, count), kind, Wait::yes); });
}
cudaError_t cudaMemcpy_ptds(void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
  return apiCall([&] { return submitCopy(cudaStreamPerThread, flat(dst, src, count), kind, Wait::yes); });
}
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return apiCall([&] { return submitCopy(stream, flat(dst, src, count), kind, Wait::no); });
}
cudaError_t cudaMemcpyAsync_ptsz(void* dst, const void* src, size_t count, cudaMemcpyKind kind,
                                 cudaStream_t stream) {
  return cudaMemcpyAsync(dst, src, count, kind, perThread(stream));
}

cudaError_t cudaMemcpyPeer(void* dst, int dstDevice, const void* src, int srcDevice, size_t count) {
  return apiCall([&] { return copyBetween(dst, dstDevice, src, srcDevice, count, kNull, Wait::yes); });
}
cudaError_t cudaMemcpyPeerAsync(void* dst, int dstDevice, const void* src, int srcDevice, size_t count,
                                cudaStream_t stream) {
  return apiCall([&] { return copyBetween(dst, dstDevice, src, srcDevice, count, stream, Wait::no); });
}

cudaError_t cudaMemcpy2D(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                         size_t height, cudaMemcpyKind kind) {
  return apiCall(
      [&] { return submitCopy(kNull, plane(dst, dpitch, src, spitch, width, height), kind, Wait::yes); });
}
cudaError_t cudaMemcpy2D_ptds(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                              size_t height, cudaMemcpyKind kind) {
  return apiCall([&] {
    return submitCopy(cudaStreamPerThread, plane(dst, dpitch, src, spitch, width, height), kind, Wait::yes);
  });
}
cudaError_t cudaMemcpy2DAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return apiCall(
      [&] { return submitCopy(stream, plane(dst, dpitch, src, spitch, width, height), kind, Wait::no); });
}
cudaError_t cudaMemcpy2DAsync_ptsz(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                                   size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpy2DAsync(dst, dpitch, src, spitch, width, height, kind, perThread(stream));
}

cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* p) {
  return apiCall([&] { return submit3D(p, kNull, Wait::yes); });
}
cudaError_t cudaMemcpy3D_ptds(const cudaMemcpy3DParms* p) {
  return apiCall([&] { return submit3D(p, cudaStreamPerThread, Wait::yes); });
}
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, cudaStream_t stream) {
  return apiCall([&] { return submit3D(p, stream, Wait::no); });
}
cudaError_t cudaMemcpy3DAsync_ptsz(const cudaMemcpy3DParms* p, cudaStream_t stream) {
  return cudaMemcpy3DAsync(p, perThread(stream));
}

cudaError_t cudaMemcpy3DPeer(const cudaMemcpy3DPeerParms* p) {
  return apiCall([&] { return submit3DPeer(p, kNull, Wait::yes); });
}
cudaError_t cudaMemcpy3DPeer_ptds(const cudaMemcpy3DPeerParms* p) {
  return apiCall([&] { return submit3DPeer(p, cudaStreamPerThread, Wait::yes); });
}
cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms* p, cudaStream_t stream) {
  return apiCall([&] { return submit3DPeer(p, stream, Wait::no); });
}
cudaError_t cudaMemcpy3DPeerAsync_ptsz(const cudaMemcpy3DPeerParms* p, cudaStream_t stream) {
  return cudaMemcpy3DPeerAsync(p, perThread(stream));
}

cudaError_t cudaMemset(void* devPtr, int value, size_t count) {
  return apiCall([&] { return submitFill(kNull, flatFill(devPtr, value, count), Wait::yes); });
}
cudaError_t cudaMemset_ptds(void* devPtr, int value, size_t count) {
  return apiCall([&] { return submitFill(cudaStreamPerThread, flatFill(devPtr, value, count), Wait::yes); });
}
cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream) {
  return apiCall([&] { return submitFill(stream, flatFill(devPtr, value, count), Wait::no); });
}
cudaError_t cudaMemsetAsync_ptsz(void* devPtr, int value, size_t count, cudaStream_t stream) {
  return cudaMemsetAsync(devPtr, value, count, perThread(stream));
}

cudaError_t cudaMemset2D(void* devPtr, size_t pitch, int value, size_t width, size_t height) {
  return apiCall(
      [&] { return submitFill(kNull, planeFill(devPtr, pitch, value, width, height), Wait::yes); });
}
cudaError_t cudaMemset2D_ptds(void* devPtr, size_t pitch, int value, size_t width, size_t height) {
  return apiCall([&] {
    return submitFill(cudaStreamPerThread, planeFill(devPtr, pitch, value, width, height), Wait::yes);
  });
}
cudaError_t cudaMemset2DAsync(void* devPtr, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  return apiCall(
      [&] { return submitFill(stream, planeFill(devPtr, pitch, value, width, height), Wait::no); });
}
cudaError_t cudaMemset2DAsync_ptsz(void* devPtr, size_t pitch, int value, size_t width, size_t height,
                                   cudaStream_t stream) {
  return cudaMemset2DAsync(devPtr, pitch, value, width, height, perThread(stream));
}

cudaError_t cudaMemset3D(cudaPitchedPtr pitchedDevPtr, int value, cudaExtent extent) {
  return apiCall([&] { return submitFill(kNull, cubeFill(pitchedDevPtr, value, extent), Wait::yes); });
}
cudaError_t cudaMemset3D_ptds(cudaPitchedPtr pitchedDevPtr, int value, cudaExtent extent) {
  return apiCall(
      [&] { return submitFill(cudaStreamPerThread, cubeFill(pitchedDevPtr, value, extent), Wait::yes); });
}
cudaError_t cudaMemset3DAsync(cudaPitchedPtr pitchedDevPtr, int value, cudaExtent extent,
                              cudaStream_t stream) {
  return apiCall([&] { return submitFill(stream, cubeFill(pitchedDevPtr, value, extent), Wait::no); });
}
cudaError_t cudaMemset3DAsync_ptsz(cudaPitchedPtr pitchedDevPtr, int value, cudaExtent extent,
                                   cudaStream_t stream) {
  return cudaMemset3DAsync(pitchedDevPtr, value, extent, perThread(stream));
}

}  // extern "C"
