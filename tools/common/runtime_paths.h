// Where the two CUDA runtimes, Tutti's for the host and NVIDIA's, lie on this machine.
#pragma once

#include <string>
#include <vector>

namespace tutti {

/// The absolute path of the running program, or empty when /proc is not readable. Also right when the dynamic
/// loader was told to run it (/lib64/ld-linux-x86-64.so.2 PROGRAM), where /proc/self/exe names the loader.
std::string programPath();

/// The loader and its options, when the dynamic loader was told to run this program; empty otherwise. `argc`
/// is main's.
std::vector<std::string> loaderCommand(int argc);

/// `loader` (of loaderCommand) with `folders` in front of the path where it looks for libraries.
std::vector<std::string> withSearchPath(std::vector<std::string> loader, const std::string& folders);

/// The folder with Tutti's libcudart.so.13, found from the place of the running program: ../lib/host in the
/// build tree and below an install prefix. Empty when there is none.
std::string findHostRuntimeFolder();

/// The folder with Tutti's libnccl.so.2 (the parent of the folder above). Empty when there is none.
std::string findNcclFolder();

/// A folder with NVIDIA's libcudart.so.13: CUDA_HOME, CUDA_PATH, ../lib and the usual places. Empty when
/// there is none.
std::string findCudaRuntimeFolder();

/// `folders` (joined by ':') in front of `old`, a search path as in LD_LIBRARY_PATH, from which they are
/// removed where they stand further back. `old` may be null.
std::string prependToSearchPath(const std::string& folders, const char* old);

/// True when libcuda.so.1 can be loaded, initialised and has a device. Initialises the driver in this
/// process.
bool hasUsableDriver();

}  // namespace tutti
