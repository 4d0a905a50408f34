#include "device/kernels/rig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/segment_shape.h"

namespace tutti::device {

std::string nameOf(const testing::TestParamInfo<Protocol>& info) {
  constexpr const char* kNames[] = {"Simple", "LL", "LL128"};
  return kNames[static_cast<size_t>(info.param)];
}

DeviceBytes::DeviceBytes(size_t bytes) {
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
  EXPECT_EQ(cudaMemset(memory, 0, bytes), cudaSuccess);
  data_ = static_cast<std::byte*>(memory);
}

DeviceBytes::DeviceBytes(const std::vector<std::byte>& contents)
    : DeviceBytes(std::max<size_t>(1, contents.size())) {
  if (!contents.empty()) std::memcpy(data_, contents.data(), contents.size());
}

namespace {
constexpr uint32_t kRigPorts = 2;
}  // namespace

Rig::Rig(RigShape shape) : shape_(shape), abort_(std::make_unique<DeviceBytes>(sizeof(uint32_t))) {
  const auto ranks = static_cast<size_t>(shape.ranks);
  SegmentLayout layout;
  layout.ranks = static_cast<uint32_t>(shape.ranks);
  layout.channels = shape.channels;
  layout.scratchHalfBytes = shape.scratchHalfBytes;
  for (size_t rank = 0; rank < ranks; ++rank)
    segments_.push_back(std::make_unique<DeviceBytes>(layout.bytes()));
  for (size_t rank = 0; rank < ranks; ++rank) {
    reports_.push_back(std::make_unique<DeviceBytes>(sizeof(Report)));
    new (reports_.back()->data()) Report();
    comms_.push_back(std::make_unique<DeviceBytes>(sizeof(Comm)));
    Comm* comm = new (comms_.back()->data()) Comm();
    comm->rank = static_cast<int32_t>(rank);
    comm->ranks = shape.ranks;
    comm->slotBytes = shape.slotBytes;
    comm->linesOfSlotLL = static_cast<uint32_t>(shape.slotBytes / kDataLL);
    comm->linesOfSlotLL128 = static_cast<uint32_t>(shape.slotBytes / kDataLL128 + 64);
    comm->layout = layout;
    auto* segments = reinterpret_cast<std::byte**>(keep(ranks * sizeof(std::byte*)));
    for (size_t peer = 0; peer < ranks; ++peer) segments[peer] = segments_[peer]->data();
    comm->segments = segments;
    const size_t ends = static_cast<size_t>(shape.channels) * kPorts * ranks;
    comm->senders = new (keep(ends * sizeof(Sender))) Sender[ends];
    comm->receivers = new (keep(ends * sizeof(Receiver))) Receiver[ends];
    comm->abort = abort_->as<uint32_t>();
    comm->report = &report(static_cast<int32_t>(rank));
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    streams_.push_back(stream);
  }
  for (uint32_t from = 0; from < ranks; ++from) {
    for (uint32_t to = 0; to < ranks; ++to) {
      for (uint32_t channel = 0; channel < shape.channels; ++channel) {
        for (uint32_t port = 0; port < kRigPorts && from != to; ++port) {
          Comm& source = comm(static_cast<int32_t>(from));
          Comm& sink = comm(static_cast<int32_t>(to));
          auto& sender = const_cast<Sender&>(source.senders[source.linkIndex(channel, port, to)]);
          auto& receiver = const_cast<Receiver&>(sink.receivers[sink.linkIndex(channel, port, from)]);
          receiver.slots = sender.slots = keep(kFifoDepth * shape.slotBytes);
          receiver.linesLL = sender.linesLL =
              reinterpret_cast<LineLL*>(keep(kFifoDepth * source.linesOfSlotLL * sizeof(LineLL)));
          receiver.linesLL128 = sender.linesLL128 =
              reinterpret_cast<LineLL128*>(keep(kFifoDepth * source.linesOfSlotLL128 * sizeof(LineLL128)));
          receiver.tail = sender.tail = new (keep(sizeof(MessageTail))) MessageTail();
          sender.sent = reinterpret_cast<uint64_t*>(keep(sizeof(uint64_t)));
          receiver.received = reinterpret_cast<uint64_t*>(keep(sizeof(uint64_t)));
          receiver.head = reinterpret_cast<uint64_t*>(keep(sizeof(uint64_t)));
          sender.head = receiver.head;
        }
      }
    }
  }
}

Rig::~Rig() {
  for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
}

std::byte* Rig::keep(size_t bytes) {
  return kept_.emplace_back(std::make_unique<DeviceBytes>(bytes))->data();
}

ChannelState& Rig::channelState(int32_t rank, uint32_t channel) {
  return *reinterpret_cast<ChannelState*>(segment(rank) + comm(rank).layout.channelState(channel));
}

void Rig::abort() { __atomic_store_n(abort_->as<uint32_t>(), 1u, __ATOMIC_RELEASE); }

const Program* Rig::upload(const ProgramText& text) {
  return kept_.emplace_back(std::make_unique<DeviceBytes>(text.bytes()))->as<const Program>();
}

Call Rig::call(const Program* program, const void* input, void* output, uint64_t count,
               uint64_t sliceElements, uint32_t elementBytes) const {
  Call call;
  call.program = program;
  call.input = static_cast<const std::byte*>(input);
  call.output = static_cast<std::byte*>(output);
  call.count = count;
  call.sliceElements = sliceElements;
  call.lanes = static_cast<uint16_t>(program->laneCount);
  call.channels = static_cast<uint16_t>(shape_.channels);
  call.slices = 1;
  for (uint32_t channel = 0; channel < shape_.channels; ++channel) {
    const BlockShape shape =
        blockShape(count, channel, shape_.channels, static_cast<uint32_t>(program->parts), elementBytes);
    call.slices = std::max(call.slices, sliceCount(shape, sliceElements));
  }
  return call;
}

LaunchArguments Rig::arguments(int32_t rank, std::vector<Call> calls) {
  LaunchArguments arguments;
  arguments.comm = &comm(rank);
  arguments.calls = arguments.heads = static_cast<uint32_t>(calls.size());
  uint32_t first = 0;
  for (Call& call : calls) {
    call.firstBlock = first;
    first += static_cast<uint32_t>(call.channels) * call.lanes;
  }
  if (calls.size() <= kInlineCalls) {
    std::copy(calls.begin(), calls.end(), arguments.inlineCalls);
  } else {
    auto* more = reinterpret_cast<Call*>(keep(calls.size() * sizeof(Call)));
    std::copy(calls.begin(), calls.end(), more);
    arguments.moreCalls = more;
  }
  return arguments;
}

void Rig::launch(int32_t rank, const shim::KernelTwin* kernel, const LaunchArguments& arguments,
                 uint32_t blocks, uint32_t links) {
  LaunchArguments copy = arguments;
  void* pointers[] = {&copy};
  EXPECT_EQ(cudaLaunchKernel(kernel->function, dim3(blocks), dim3(shape_.threads), pointers,
                             sharedBytesFor(links), streams_[static_cast<size_t>(rank)]),
            cudaSuccess);
}

void Rig::launch(int32_t rank, ncclDataType_t type, Protocol protocol, const Call& call, uint32_t links) {
  launch(rank, kernelTwin(type, protocol), arguments(rank, {call}),
         static_cast<uint32_t>(call.channels) * call.lanes, links);
}

cudaError_t Rig::synchronize() { return cudaDeviceSynchronize(); }

}  // namespace tutti::device
