#include "device/kernel_table.h"

#include "device/kernel_image.h"

namespace tutti {
namespace device::kernels {

// Defined in the interpreter_*.cu files, as the host compiler sees them.
const shim::KernelTwin* twinOfInt8(Protocol protocol);
const shim::KernelTwin* twinOfUint8(Protocol protocol);
const shim::KernelTwin* twinOfInt32(Protocol protocol);
const shim::KernelTwin* twinOfUint32(Protocol protocol);
const shim::KernelTwin* twinOfInt64(Protocol protocol);
const shim::KernelTwin* twinOfUint64(Protocol protocol);
const shim::KernelTwin* twinOfFloat16(Protocol protocol);
const shim::KernelTwin* twinOfFloat32(Protocol protocol);
const shim::KernelTwin* twinOfFloat64(Protocol protocol);
const shim::KernelTwin* twinOfBfloat16(Protocol protocol);
const shim::KernelTwin* twinOfFloat8e4m3(Protocol protocol);
const shim::KernelTwin* twinOfFloat8e5m2(Protocol protocol);

}  // namespace device::kernels

namespace {

struct TypeEntry {
  ncclDataType_t type;
  const char* name;
  const shim::KernelTwin* (*twin)(device::Protocol);
};

constexpr TypeEntry kTypes[] = {
    {ncclInt8, "Int8", device::kernels::twinOfInt8},
    {ncclUint8, "Uint8", device::kernels::twinOfUint8},
    {ncclInt32, "Int32", device::kernels::twinOfInt32},
    {ncclUint32, "Uint32", device::kernels::twinOfUint32},
    {ncclInt64, "Int64", device::kernels::twinOfInt64},
    {ncclUint64, "Uint64", device::kernels::twinOfUint64},
    {ncclFloat16, "Float16", device::kernels::twinOfFloat16},
    {ncclFloat32, "Float32", device::kernels::twinOfFloat32},
    {ncclFloat64, "Float64", device::kernels::twinOfFloat64},
    {ncclBfloat16, "Bfloat16", device::kernels::twinOfBfloat16},
    {ncclFloat8e4m3, "Float8e4m3", device::kernels::twinOfFloat8e4m3},
    {ncclFloat8e5m2, "Float8e5m2", device::kernels::twinOfFloat8e5m2},
};

const TypeEntry* entryOf(ncclDataType_t type) {
  for (const TypeEntry& entry : kTypes)
    if (entry.type == type) return &entry;
  return nullptr;
}

}  // namespace

const shim::KernelTwin* kernelTwin(ncclDataType_t type, device::Protocol protocol) {
  const TypeEntry* entry = entryOf(type);
  return entry == nullptr ? nullptr : entry->twin(protocol);
}

std::span<const std::byte> kernelImage() { return device::embeddedKernels(); }

std::string kernelName(ncclDataType_t type, device::Protocol protocol) {
  constexpr const char* kProtocols[] = {"Simple", "LL", "LL128"};
  const TypeEntry* entry = entryOf(type);
  if (entry == nullptr) return "";
  return std::string("tuttiInterpret") + entry->name + kProtocols[static_cast<size_t>(protocol)];
}

uint32_t sharedBytesFor(uint32_t links) { return device::kLaneStateBytes + links * device::kLinkStateBytes; }

}  // namespace tutti
