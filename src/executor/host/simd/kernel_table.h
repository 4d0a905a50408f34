// The kernels of every instruction set, by type and operation. Filled at compile time by the reduce_*.cc
// files.
#pragma once

#include "executor/host/simd/reduce.h"

namespace tutti {

constexpr int kReductions = 4;

/// Null where this build has no such target.
struct KernelTable {
  ReduceKernel kernels[kSimdTargets][ncclNumTypes][kReductions] = {};
  ReduceKernel copy[kSimdTargets] = {};
};

void addIntegerKernels(KernelTable* table);
void addFloatKernels(KernelTable* table);
void addNarrowFloatKernels(KernelTable* table);

const KernelTable& kernelTable();

}  // namespace tutti
