// Kernels give the bits that the host executor gives: types, operators, protocols, sizes and addresses.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "device/kernels/rig.h"
#include "executor/host/simd/reduce.h"

namespace tutti::device {
namespace {

constexpr ncclDataType_t kTypes[] = {ncclInt8,    ncclUint8,    ncclInt32,      ncclUint32,
                                     ncclInt64,   ncclUint64,   ncclFloat16,    ncclFloat32,
                                     ncclFloat64, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2};
constexpr Protocol kProtocols[] = {Protocol::simple, Protocol::ll, Protocol::ll128};
constexpr size_t kGuard = 64;

/// ThreadSanitizer makes kernels slow, and what it looks for does not depend on the numbers.
#if defined(__SANITIZE_THREAD__)
constexpr int32_t kMemberStep = 2;
const std::vector<size_t> kLengths = {5, 1301};
#else
constexpr int32_t kMemberStep = 1;
const std::vector<size_t> kLengths = {1, 5, 67, 1301};
#endif

/// Random bits, so that NaN, infinities and subnormals come, among numbers of a few digits, whose sums fall
/// between two numbers of a small type.
std::vector<std::byte> randomElements(ncclDataType_t type, size_t elements, std::mt19937_64& random) {
  const size_t size = elementBytes(type);
  std::vector<std::byte> result(elements * size);
  for (size_t i = 0; i < elements; ++i) {
    uint64_t bits = random();
    const double number = static_cast<double>(static_cast<int>(random() % 2001) - 1000) / 64;
    const bool plain = random() % 4 != 0;
    if (type == ncclFloat32 && plain) {
      const auto value = static_cast<float>(number);
      std::memcpy(&bits, &value, sizeof value);
    } else if (type == ncclFloat64 && plain) {
      std::memcpy(&bits, &number, sizeof number);
    } else if (random() % 16 == 0) {
      bits = random() % 2 == 0 ? 0 : uint64_t{1} << (8 * size - 1);  // zeros of both signs
    }
    std::memcpy(result.data() + i * size, &bits, size);
  }
  return result;
}

struct Case {
  ncclDataType_t type = ncclFloat32;
  Protocol protocol = Protocol::simple;
  ReductionSpec spec;
  size_t elements = 0;
  size_t sourceShift = 0;  // bytes behind a multiple of 16
  size_t destinationShift = 0;
  int32_t members = 3;  // whose memory is added to the message
  bool finalize = false;
};

/// Rank 0 sends; rank 1 adds members' memory to the message, stores the result for ranks 1 and 2 and sends it
/// back.
class Exchange {
 public:
  Exchange() : rig_({.ranks = 4}) {}

  void run(const Case& c, std::mt19937_64& random) {
    const size_t size = elementBytes(c.type);
    const size_t bytes = c.elements * size;
    // 0: the message; 1...: members
    std::vector<std::vector<std::byte>> inputs;
    std::vector<std::unique_ptr<DeviceBytes>> memory;
    std::vector<std::byte*> places;
    for (int32_t k = 0; k <= c.members; ++k) {
      inputs.push_back(randomElements(c.type, c.elements, random));
      places.push_back(makeBuffer(memory, bytes, c.sourceShift));
      if (bytes != 0) std::memcpy(places.back(), inputs.back().data(), bytes);
    }
    std::byte* outputs[3] = {};  // of ranks 0, 1, 2
    for (auto& output : outputs) output = makeBuffer(memory, bytes, c.destinationShift);
    for (int32_t rank = 2; rank < 4; ++rank) {
      auto* board = reinterpret_cast<Board*>(rig_.segment(1) +
                                             rig_.comm(1).layout.board(0, static_cast<uint32_t>(rank)));
      board->input = rank - 1 < static_cast<int32_t>(places.size()) - 1
                         ? reinterpret_cast<uint64_t>(places[static_cast<size_t>(rank)])
                         : 0;
      board->output = reinterpret_cast<uint64_t>(outputs[2]);
    }
    const size_t sliceElements = rig_.shape().slotBytes / size;
    Call first = rig_.call(senderProgram(), places[0], outputs[0], c.elements, sliceElements,
                           static_cast<uint32_t>(size));
    Call second = rig_.call(adderProgram(c.members, c.finalize), places[1], outputs[1], c.elements,
                            sliceElements, static_cast<uint32_t>(size));
    setOperator(c, &second);
    setOperator(c, &first);
    rig_.launch(0, c.type, c.protocol, first);
    rig_.launch(1, c.type, c.protocol, second);
    ASSERT_EQ(rig_.synchronize(), cudaSuccess);

    const auto expected = oracle(c, inputs);
    for (size_t rank = 0; rank < 3; ++rank) {
      for (size_t i = 0; i < c.elements; ++i) {
        ASSERT_EQ(std::memcmp(outputs[rank] + i * size, expected.data() + i * size, size), 0)
            << "element " << i << " of rank " << rank;
      }
      for (size_t i = 0; i < kGuard; ++i) {
        ASSERT_EQ(outputs[rank][bytes + i], std::byte{0x5a}) << "behind the end, rank " << rank;
        ASSERT_EQ(*(outputs[rank] - 1 - i), std::byte{0x5a}) << "before the start, rank " << rank;
      }
    }
  }

 private:
  static std::byte* makeBuffer(std::vector<std::unique_ptr<DeviceBytes>>& memory, size_t bytes,
                               size_t shift) {
    const size_t all = bytes + shift + 2 * kGuard;
    std::byte* start = memory.emplace_back(std::make_unique<DeviceBytes>(all))->data();
    std::memset(start, 0x5a, all);
    return start + kGuard + shift;
  }

  static void setOperator(const Case& c, Call* call) {
    call->op = static_cast<Op>(c.spec.op);
    call->hasScale = c.spec.hasScale;
    const bool floats = c.type >= ncclFloat16;
    call->scale = c.spec.integerScale;
    if (floats) std::memcpy(&call->scale, &c.spec.scale, sizeof c.spec.scale);
    call->divisor = c.spec.divisor;
  }

  const Program* senderProgram() {
    if (sender_ == nullptr) {
      ProgramText text(0, 4);
      LaneText& lane = text.lane();
      Step& send = lane.send(1, placeIn(BufferKind::input, {}));
      send.scaled = ScaledSources::first;
      lane.receive(1, placeIn(BufferKind::output, {}));
      sender_ = rig_.upload(text);
    }
    return sender_;
  }

  const Program* adderProgram(int32_t members, bool finalize) {
    const Program*& program = adders_[members][finalize];
    if (program == nullptr) {
      ProgramText text(1, 4);
      LaneText& lane = text.lane();
      Step& step = lane.step(StepKind::recvReduceCopySend);
      lane.receivesFrom(step, 0);
      lane.sendsTo(step, 0);
      lane.readsFrom(step, placeIn(BufferKind::input, {}));
      lane.writesTo(step, placeIn(BufferKind::output, {}));
      if (members > 1) {
        std::vector<int32_t> ranks = {1, 2, 3};
        ranks.resize(static_cast<size_t>(members));
        lane.readsTeam(step, ranks);
        step.messageFirst = 1;
        step.scaled = ScaledSources::rest;
      } else {
        step.scaled = ScaledSources::first;
      }
      lane.writesTeam(step, {1, 2});
      step.finalize = finalize;
      program = rig_.upload(text);
    }
    return program;
  }

  /// The message was scaled where it was sent.
  static std::vector<std::byte> oracle(const Case& c, const std::vector<std::vector<std::byte>>& inputs) {
    ReductionSpec spec = c.spec;
    spec.type = c.type;
    const Reducer reducer(spec, SimdTarget::scalar);
    const size_t bytes = inputs[0].size();
    std::vector<std::byte> message(bytes);
    const std::byte* raw = inputs[0].data();
    std::byte* scaled = message.data();
    reducer.run(&raw, 1, &scaled, 1, bytes, Scaled::first, false, false);
    std::vector<const std::byte*> sources = {scaled};
    for (int32_t k = 1; k <= c.members; ++k) sources.push_back(inputs[static_cast<size_t>(k)].data());
    if (c.members == 1) std::swap(sources[0], sources[1]);  // src (+) msg
    std::vector<std::byte> result(bytes);
    std::byte* destination = result.data();
    reducer.run(sources.data(), static_cast<int32_t>(sources.size()), &destination, 1, bytes,
                c.members == 1 ? Scaled::first : Scaled::rest, c.finalize, false);
    return result;
  }

  Rig rig_;
  const Program* sender_ = nullptr;
  const Program* adders_[4][2] = {};
};

class ReduceKernels : public testing::TestWithParam<std::tuple<ncclDataType_t, Protocol>> {};

}  // namespace

TEST_P(ReduceKernels, GiveTheBitsOfTheHostExecutorForEveryOperator) {
  std::mt19937_64 random(7);
  Exchange exchange;
  Case c;
  std::tie(c.type, c.protocol) = GetParam();
  for (const Reduction op : {Reduction::sum, Reduction::prod, Reduction::max, Reduction::min}) {
    c.spec.op = op;
    for (const size_t elements : kLengths) {
      c.elements = elements;
      for (c.members = 1; c.members <= 3; c.members += kMemberStep) {
        ASSERT_NO_FATAL_FAILURE(exchange.run(c, random))
            << elements << " elements, operator " << static_cast<int>(op) << ", " << c.members << " members";
      }
    }
  }
}

TEST_P(ReduceKernels, TakeAnyAddress) {
  std::mt19937_64 random(8);
  Exchange exchange;
  Case c;
  std::tie(c.type, c.protocol) = GetParam();
  const size_t size = elementBytes(c.type);
  for (const auto& [source, destination] :
       {std::pair<size_t, size_t>{size, size}, {size, 0}, {0, size}, {1, 1}, {3, 2}, {8, 8}, {0, 8}}) {
    c.sourceShift = source;
    c.destinationShift = destination;
    for (const size_t elements : {0, 2, 31, 700}) {
      c.elements = elements;
      ASSERT_NO_FATAL_FAILURE(exchange.run(c, random))
          << elements << " elements, shifted by " << source << " and " << destination;
    }
  }
}

TEST_P(ReduceKernels, ScaleContributionsAndDivideResults) {
  std::mt19937_64 random(9);
  Exchange exchange;
  Case c;
  std::tie(c.type, c.protocol) = GetParam();
  c.elements = 333;
  for (const bool finalize : {false, true}) {
    c.finalize = finalize;
    for (c.members = 1; c.members <= 3; c.members += 2) {
      c.spec = {};
      c.spec.hasScale = true;
      c.spec.scale = 1.0 / 3;
      c.spec.integerScale = 3;
      ASSERT_NO_FATAL_FAILURE(exchange.run(c, random)) << "scaled";
      c.spec.divisor = c.type < ncclFloat16 ? 7 : 1;
      ASSERT_NO_FATAL_FAILURE(exchange.run(c, random)) << "scaled and divided";
      c.spec.hasScale = false;
      ASSERT_NO_FATAL_FAILURE(exchange.run(c, random)) << "divided";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, ReduceKernels,
                         testing::Combine(testing::ValuesIn(kTypes), testing::ValuesIn(kProtocols)));

}  // namespace tutti::device
