// Where the two CUDA runtimes, Tutti's for the host and NVIDIA's, lie on this machine.
#pragma once

#include <string>

namespace tutti {

/// The absolute path of the running program, or empty when /proc is not readable.
std::string programPath();

/// The folder with Tutti's libcudart.so.13, found from the place of the running program: ../lib/host in the
/// build tree and below an install prefix. Empty when there is none.
std::string findHostRuntimeFolder();

/// The folder with Tutti's libnccl.so.2 (the parent of the folder above). Empty when there is none.
std::string findNcclFolder();

/// A folder with NVIDIA's libcudart.so.13: CUDA_HOME, CUDA_PATH and the usual places. Empty when there is
/// none.
std::string findCudaRuntimeFolder();

/// `folders` (joined by ':') in front of `old`, a search path as in LD_LIBRARY_PATH, from which they are
/// removed where they stand further back. `old` may be null.
std::string prependToSearchPath(const std::string& folders, const char* old);

/// True when libcuda.so.1 can be loaded, initialised and has a device. Initialises the driver in this
/// process.
bool hasUsableDriver();

}  // namespace tutti
