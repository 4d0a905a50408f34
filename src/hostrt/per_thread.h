// The forms of functions that nvcc --default-stream per-thread calls: declared here, since the public header
// only renames to them.
#pragma once

#include "hostrt/api.h"

namespace tutti::hostrt {

/// In these functions the null stream is the calling thread's own.
inline cudaStream_t perThread(cudaStream_t stream) { return stream ? stream : cudaStreamPerThread; }

}  // namespace tutti::hostrt

#pragma GCC visibility push(default)
extern "C" {
decltype(cudaMemcpy) cudaMemcpy_ptds;
decltype(cudaMemcpy2D) cudaMemcpy2D_ptds;
decltype(cudaMemcpy3D) cudaMemcpy3D_ptds;
decltype(cudaMemcpy3DPeer) cudaMemcpy3DPeer_ptds;
decltype(cudaMemcpy3DPeerAsync) cudaMemcpy3DPeerAsync_ptsz;
decltype(cudaMemset) cudaMemset_ptds;
decltype(cudaMemset2D) cudaMemset2D_ptds;
decltype(cudaMemset3D) cudaMemset3D_ptds;
decltype(cudaMemcpyAsync) cudaMemcpyAsync_ptsz;
decltype(cudaMemcpy2DAsync) cudaMemcpy2DAsync_ptsz;
decltype(cudaMemcpy3DAsync) cudaMemcpy3DAsync_ptsz;
decltype(cudaMemsetAsync) cudaMemsetAsync_ptsz;
decltype(cudaMemset2DAsync) cudaMemset2DAsync_ptsz;
decltype(cudaMemset3DAsync) cudaMemset3DAsync_ptsz;
decltype(cudaMallocAsync) cudaMallocAsync_ptsz;
decltype(cudaMallocFromPoolAsync) cudaMallocFromPoolAsync_ptsz;
decltype(cudaFreeAsync) cudaFreeAsync_ptsz;
decltype(cudaMemPrefetchAsync) cudaMemPrefetchAsync_ptsz;
decltype(cudaStreamAddCallback) cudaStreamAddCallback_ptsz;
decltype(cudaStreamAttachMemAsync) cudaStreamAttachMemAsync_ptsz;
decltype(cudaStreamBeginCapture) cudaStreamBeginCapture_ptsz;
decltype(cudaStreamBeginCaptureToGraph) cudaStreamBeginCaptureToGraph_ptsz;
decltype(cudaStreamEndCapture) cudaStreamEndCapture_ptsz;
decltype(cudaStreamUpdateCaptureDependencies) cudaStreamUpdateCaptureDependencies_ptsz;
decltype(cudaStreamCopyAttributes) cudaStreamCopyAttributes_ptsz;
decltype(cudaGraphInstantiateWithParams) cudaGraphInstantiateWithParams_ptsz;
decltype(cudaGraphUpload) cudaGraphUpload_ptsz;
decltype(cudaGraphLaunch) cudaGraphLaunch_ptsz;
decltype(cudaStreamGetCaptureInfo) cudaStreamGetCaptureInfo_ptsz;
decltype(cudaStreamGetDevice) cudaStreamGetDevice_ptsz;
decltype(cudaStreamGetFlags) cudaStreamGetFlags_ptsz;
decltype(cudaStreamGetId) cudaStreamGetId_ptsz;
decltype(cudaStreamGetPriority) cudaStreamGetPriority_ptsz;
decltype(cudaStreamIsCapturing) cudaStreamIsCapturing_ptsz;
decltype(cudaStreamQuery) cudaStreamQuery_ptsz;
decltype(cudaStreamSynchronize) cudaStreamSynchronize_ptsz;
decltype(cudaStreamWaitEvent) cudaStreamWaitEvent_ptsz;
decltype(cudaEventRecord) cudaEventRecord_ptsz;
decltype(cudaEventRecordWithFlags) cudaEventRecordWithFlags_ptsz;
decltype(cudaLaunchHostFunc) cudaLaunchHostFunc_ptsz;
decltype(cudaLaunchKernel) cudaLaunchKernel_ptsz;
decltype(cudaLaunchKernelExC) cudaLaunchKernelExC_ptsz;
decltype(cudaLaunchCooperativeKernel) cudaLaunchCooperativeKernel_ptsz;
decltype(cudaMemcpyToSymbol) cudaMemcpyToSymbol_ptds;
decltype(cudaMemcpyFromSymbol) cudaMemcpyFromSymbol_ptds;
decltype(cudaMemcpyToSymbolAsync) cudaMemcpyToSymbolAsync_ptsz;
decltype(cudaMemcpyFromSymbolAsync) cudaMemcpyFromSymbolAsync_ptsz;
decltype(cudaGetDriverEntryPoint) cudaGetDriverEntryPoint_ptsz;
decltype(cudaGetDriverEntryPointByVersion) cudaGetDriverEntryPointByVersion_ptsz;
}
#pragma GCC visibility pop
