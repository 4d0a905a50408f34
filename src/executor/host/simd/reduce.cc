#include "executor/host/simd/reduce.h"

#include <cstring>

#include "executor/host/simd/kernel_table.h"

namespace tutti {

const KernelTable& kernelTable() {
  static const KernelTable table = [] {
    KernelTable made;
    addIntegerKernels(&made);
    addFloatKernels(&made);
    addNarrowFloatKernels(&made);
    return made;
  }();
  return table;
}

size_t elementBytes(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

Reducer::Reducer(const ReductionSpec& spec, SimdTarget target)
    : kernel_(kernelTable().kernels[static_cast<int>(target)][spec.type][static_cast<int>(spec.op)]),
      target_(target),
      elementBytes_(static_cast<uint32_t>(tutti::elementBytes(spec.type))),
      hasScale_(spec.hasScale),
      scale_(spec.scale),
      integerScale_(spec.integerScale),
      divisor_(spec.divisor) {}

void Reducer::run(const std::byte* const* sources, int32_t sourceCount, std::byte* const* destinations,
                  int32_t destinationCount, size_t bytes, Scaled scaled, bool finalize, bool stream) const {
  if (!hasScale_ || (scaled == Scaled::rest && sourceCount < 2)) scaled = Scaled::none;
  const uint64_t divisor = finalize ? divisor_ : 1;
  if (sourceCount == 1 && scaled == Scaled::none && divisor == 1) {
    return copyToMany(destinations, destinationCount, sources[0], bytes, stream, target_);
  }
  KernelArguments arguments;
  arguments.sources = sources;
  arguments.destinations = destinations;
  arguments.sourceCount = sourceCount;
  arguments.destinationCount = destinationCount;
  arguments.elements = bytes / elementBytes_;
  arguments.scaled = scaled;
  arguments.stream = stream;
  arguments.scale = scale_;
  arguments.integerScale = integerScale_;
  arguments.divisor = divisor;
  kernel_(arguments);
}

void copyToMany(std::byte* const* destinations, int32_t count, const std::byte* source, size_t bytes,
                bool stream, SimdTarget target) {
  if (count == 1 && !stream) {
    if (destinations[0] != source) std::memcpy(destinations[0], source, bytes);
    return;
  }
  KernelArguments arguments;
  arguments.sources = &source;
  arguments.destinations = destinations;
  arguments.sourceCount = 1;
  arguments.destinationCount = count;
  arguments.elements = bytes;
  arguments.stream = stream;
  kernelTable().copy[static_cast<int>(target)](arguments);
}

void copyBytes(std::byte* destination, const std::byte* source, size_t bytes, bool stream,
               SimdTarget target) {
  copyToMany(&destination, 1, source, bytes, stream, target);
}

}  // namespace tutti
