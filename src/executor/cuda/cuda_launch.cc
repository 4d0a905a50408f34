#include "executor/cuda/cuda_launch.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "algorithms/segment_table.h"
#include "executor/cuda/cuda_shape.h"
#include "executor/host/simd/reduce.h"

namespace tutti {
namespace {

bool isFloating(ncclDataType_t type) { return type >= ncclFloat16; }

void fillOperator(const CudaCall& call, device::Call* out) {
  const ReductionSpec& reduction = call.reduction;
  out->op = static_cast<device::Op>(reduction.op);
  out->hasScale = reduction.hasScale || call.scalar != nullptr ? 1 : 0;
  out->scalar = call.scalar;
  out->scale = isFloating(reduction.type) ? std::bit_cast<uint64_t>(reduction.scale) : reduction.integerScale;
  out->divisor = reduction.divisor;
}

Status checkShape(const CallShape& shape, const Schedule& schedule) {
  if (shape.collective != schedule.collective || shape.ranks != schedule.ranks ||
      shape.parts != schedule.parts || shape.root != schedule.root)
    return internalError("schedule {} is not made for this call's shape", schedule.name);
  if (shape.blocks != nullptr && (shape.blocks->counts.size() != static_cast<size_t>(schedule.blocks()) ||
                                  shape.blocks->offsets.size() != shape.blocks->counts.size()))
    return internalError("schedule {} has {} blocks, the call {}", schedule.name, schedule.blocks(),
                         shape.blocks->counts.size());
  return Status::ok();
}

/// In the kernel's elements.
void fillSizes(const CallShape& shape, size_t unit, CudaLaunch* launch) {
  launch->blockSizes.reserve(2 * shape.blocks->counts.size());
  for (const size_t count : shape.blocks->counts) launch->blockSizes.push_back(count * unit);
  for (const size_t offset : shape.blocks->offsets) launch->blockSizes.push_back(offset * unit);
}

size_t aligned16(size_t bytes) { return (bytes + 15) / 16 * 16; }

size_t callBytes(const CudaLaunch& launch) {
  return launch.calls.size() > device::kInlineCalls ? launch.calls.size() * sizeof(device::Call) : 0;
}

}  // namespace

Status addCall(const CudaCall& call, const CudaProgram& program, const device::Comm& comm,
               CudaLaunch* launch) {
  const Schedule& schedule = *program.schedule;
  CallShape shape = call.shape;
  TUTTI_TRY(checkShape(shape, schedule));
  const bool reduces = isReduction(schedule.collective);
  if (reduces && elementBytes(call.reduction.type) != shape.elementBytes)
    return internalError("elements of {} bytes where the type has {}", shape.elementBytes,
                         elementBytes(call.reduction.type));
  if (reduces) launch->type = call.reduction.type;
  shape.channel = 0;  // the longest share
  shape.sliceBytes = longestSlice(schedule, comm, launch->protocol);
  if (shape.sliceBytes == 0)
    return internalError(
        "schedule {}: {} segments a message and {} of scratch are too many for slots of {} "
        "bytes and scratch of {}",
        schedule.name, schedule.maxCount, schedule.scratchSegments, comm.slotBytes,
        comm.layout.scratchHalfBytes);
  // What does not reduce moves bytes: the kernel of bytes serves all types.
  const size_t unit = reduces ? 1 : shape.elementBytes;
  const auto channels = static_cast<uint32_t>(shape.channels);

  device::Call out;
  out.program = program.onDevice;
  out.input = static_cast<const std::byte*>(call.input);
  out.output = static_cast<std::byte*>(call.output);
  out.count = shape.count * unit;
  out.sliceElements = shape.sliceBytes / (reduces ? shape.elementBytes : 1);
  out.slices = SegmentTable(shape).slices();
  out.channels = static_cast<uint16_t>(channels);
  out.lanes = static_cast<uint16_t>(program.head().laneCount);
  if (reduces) fillOperator(call, &out);
  if (shape.blocks != nullptr) fillSizes(shape, unit, launch);

  const size_t elements = shape.blocks != nullptr
                              ? shape.blocks->total()
                              : shape.count * static_cast<size_t>(program.head().blocksOfData);
  launch->blockBytes = std::max(launch->blockBytes, elements * shape.elementBytes / channels);
  launch->sliceBytes = std::max(launch->sliceBytes, shape.sliceBytes);
  launch->mostLinks = std::max(launch->mostLinks, program.mostLinks);
  launch->calls.push_back(out);
  return Status::ok();
}

size_t longBytes(const CudaLaunch& launch) {
  return aligned16(callBytes(launch)) + launch.blockSizes.size() * sizeof(uint64_t);
}

std::vector<std::byte> packLong(CudaLaunch& launch, std::byte* at, device::LaunchArguments* arguments) {
  std::vector<std::byte> bytes(longBytes(launch));
  const size_t sizesAt = aligned16(callBytes(launch));
  if (!launch.blockSizes.empty()) {
    std::memcpy(bytes.data() + sizesAt, launch.blockSizes.data(),
                launch.blockSizes.size() * sizeof(uint64_t));
    const auto* onDevice = static_cast<const uint64_t*>(static_cast<const void*>(at + sizesAt));
    launch.calls[0].blockCounts = onDevice;
    launch.calls[0].blockOffsets = onDevice + launch.blockSizes.size() / 2;
  }
  arguments->calls = static_cast<uint32_t>(launch.calls.size());
  arguments->heads = launch.heads;
  if (callBytes(launch) == 0) {
    std::ranges::copy(launch.calls, arguments->inlineCalls);
  } else {
    std::memcpy(bytes.data(), launch.calls.data(), callBytes(launch));
    arguments->moreCalls = static_cast<const device::Call*>(static_cast<const void*>(at));
  }
  return bytes;
}

}  // namespace tutti
