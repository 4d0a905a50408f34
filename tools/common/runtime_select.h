// The choice between the GPU's CUDA runtime and Tutti's host runtime, made when a program starts.
#pragma once

namespace tutti {

/// Call first in main, before any CUDA call and before threads exist. When the wrong libcudart.so.13 is
/// loaded, runs the program again in place (execv, same process id and arguments) with the right one in front
/// of LD_LIBRARY_PATH; otherwise returns at once.
///
///   TUTTI_RUNTIME=host   the host runtime
///   TUTTI_RUNTIME=cuda   NVIDIA's
///   unset                NVIDIA's when a driver with a device is there (libcuda.so.1 loads, cuInit
///   succeeds),
///                        otherwise the host runtime
///
/// A program that has neither runtime loaded is left alone. When the wanted runtime cannot be found, says so
/// on stderr and exits with 1 if TUTTI_RUNTIME asked for it, or goes on with what is loaded if not. Devices
/// that the program hides from itself later (setenv("CUDA_VISIBLE_DEVICES")) are not taken into account.
void selectRuntime(int argc, char** argv);

}  // namespace tutti
