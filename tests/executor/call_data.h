// Calls whose results are known, and their buffers on all ranks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "algorithms/registry.h"
#include "algorithms/schedule.h"
#include "algorithms/segment_table.h"
#include "executor/reduce_oracle.h"

namespace tutti::test {

struct Call {
  std::string algorithm = "ring";
  Collective collective = Collective::allReduce;
  int root = 0;
  size_t count = 1;  // elements per block
  ReductionSpec reduction;
  bool inPlace = false;
  int channels = 1;
  size_t maxSliceBytes = SIZE_MAX;
  size_t salt = 0;  // varies the inputs, so that one call's data are wrong for another

  std::string text() const {
    return algorithm + " " + name(collective) + " count " + std::to_string(count) + " type " +
           std::to_string(reduction.type) + " op " + std::to_string(static_cast<int>(reduction.op)) +
           " root " + std::to_string(root) + (inPlace ? " in place" : "") + " channels " +
           std::to_string(channels) + " slice " + std::to_string(maxSliceBytes) +
           (reduction.hasScale ? " scaled" : "") + (reduction.divisor != 1 ? " divided" : "");
  }
};

/// Buffers of one call on all ranks. Inputs are such that every order of reduction is exact.
class CallBuffers {
 public:
  CallBuffers(int ranks, const Call& call) : call_(call), width_(tutti::elementBytes(call.reduction.type)) {
    block_ = call.count * width_;
    ranks_.resize(static_cast<size_t>(ranks));
    for (int r = 0; r < ranks; ++r) allocate(r);
  }

  int ranks() const { return static_cast<int>(ranks_.size()); }
  const Call& call() const { return call_; }
  size_t elementBytes() const { return width_; }
  std::byte* input(int rank) const { return ranks_[static_cast<size_t>(rank)].input; }
  std::byte* output(int rank) const { return ranks_[static_cast<size_t>(rank)].output; }
  /// The memory as it was before the call.
  void restore() {
    for (int r = 0; r < ranks(); ++r) {
      std::ranges::fill(ranks_[static_cast<size_t>(r)].memory, kUntouched);
      fillInput(r, input(r));
    }
  }

  void expectRight() const {
    for (int r = 0; r < ranks(); ++r) {
      const PerRank& rank = ranks_[static_cast<size_t>(r)];
      const std::vector<std::byte> wanted = expectedMemory(r);
      ASSERT_EQ(rank.memory.size(), wanted.size());
      if (rank.memory == wanted) continue;
      for (size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_EQ(rank.memory[i], wanted[i])
            << call_.text() << ": rank " << r << " of " << ranks() << ", byte "
            << static_cast<long>(i) - static_cast<long>(rank.output - rank.memory.data()) << " of the output";
      }
    }
  }

 private:
  struct PerRank {
    std::vector<std::byte> memory;  // guard | input | guard | output | guard, or one region in place
    std::byte* input = nullptr;
    std::byte* output = nullptr;
  };
  static constexpr size_t kGuard = 128;
  static constexpr std::byte kUntouched{0xa5};

  size_t blocksOf(Buffer buffer, int rank) const {
    const bool isRoot = rank == call_.root;
    if (call_.collective == Collective::broadcast && buffer == Buffer::input) return isRoot ? 1 : 0;
    if (call_.collective == Collective::reduce && buffer == Buffer::output) return isRoot ? 1 : 0;
    if (call_.collective == Collective::gather && buffer == Buffer::output && !isRoot) return 0;
    if (call_.collective == Collective::scatter && buffer == Buffer::input && !isRoot) return 0;
    return holdsAllBlocks(call_.collective, buffer) ? static_cast<size_t>(ranks()) : 1;
  }
  void allocate(int r) {
    PerRank& rank = ranks_[static_cast<size_t>(r)];
    const size_t in = blocksOf(Buffer::input, r) * block_;
    const size_t out = blocksOf(Buffer::output, r) * block_;
    rank.memory.assign(in + out + 3 * kGuard, kUntouched);
    rank.input = rank.memory.data() + kGuard;
    rank.output = rank.input + in + kGuard;
    if (call_.inPlace) {
      const size_t shift = static_cast<size_t>(r) * block_;
      const bool zeroCopyAllToAll = call_.collective == Collective::allToAll && call_.algorithm == "direct";
      if (in == 0 || out == 0 || zeroCopyAllToAll) {
        // nothing to share, or not possible in place
      } else if (holdsAllBlocks(call_.collective, Buffer::input) &&
                 !holdsAllBlocks(call_.collective, Buffer::output)) {
        rank.output = rank.input + shift;
      } else if (holdsAllBlocks(call_.collective, Buffer::output) &&
                 !holdsAllBlocks(call_.collective, Buffer::input)) {
        rank.input = rank.output + shift;
      } else {
        rank.output = rank.input;
      }
    }
    fillInput(r, rank.input);
  }
  void fillInput(int rank, std::byte* to) const {
    const size_t elements = blocksOf(Buffer::input, rank) * call_.count;
    for (size_t i = 0; i < elements; ++i) writeValue(rank, i, to + i * width_);
  }
  /// Small whole numbers: sums of 9 of them, twice, are exact even in 8-bit floats.
  void writeValue(int rank, size_t index, std::byte* to) const {
    const size_t mixed = index * 7 + static_cast<size_t>(rank) * 3 + index / 61 + call_.salt * 13;
    double value = static_cast<double>(mixed % 2);
    if (call_.reduction.op == Reduction::prod)
      value = (index + static_cast<size_t>(rank) + call_.salt) % 4 == 0 ? 2 : 1;
    if (call_.reduction.type == ncclFloat32 || call_.reduction.type == ncclFloat64) {
      if (call_.reduction.op != Reduction::prod) value = static_cast<double>(mixed % 1024) - 300;
    }
    switch (call_.reduction.type) {
      case ncclFloat32: {
        const auto v = static_cast<float>(value);
        std::memcpy(to, &v, sizeof(v));
        break;
      }
      case ncclFloat64:
        std::memcpy(to, &value, sizeof(value));
        break;
      case ncclFloat16:
      case ncclBfloat16:
      case ncclFloat8e4m3:
      case ncclFloat8e5m2: {
        const uint32_t code = oracle::format(call_.reduction.type).encode(value);
        std::memcpy(to, &code, width_);
        break;
      }
      default: {
        const uint64_t bits = mixed * 0x9e3779b97f4a7c15u;  // integers wrap: any values
        std::memcpy(to, &bits, width_);
      }
    }
  }

  std::vector<std::byte> inputOf(int rank) const {
    std::vector<std::byte> bytes(blocksOf(Buffer::input, rank) * block_);
    fillInput(rank, bytes.data());
    return bytes;
  }
  std::vector<std::byte> reduced() const {
    const auto count = static_cast<size_t>(ranks());
    std::vector<std::vector<std::byte>> inputs;
    std::vector<const std::byte*> pointers;
    for (size_t r = 0; r < count; ++r) inputs.push_back(inputOf(static_cast<int>(r)));
    for (const auto& input : inputs) pointers.push_back(input.data());
    return oracle::reduce(call_.reduction, pointers, inputs[0].size() / width_,
                          std::vector<bool>(count, true), true);
  }
  std::vector<std::byte> blockOf(const std::vector<std::byte>& all, int block) const {
    const auto first = all.begin() + static_cast<long>(static_cast<size_t>(block) * block_);
    return {first, first + static_cast<long>(block_)};
  }
  std::vector<std::byte> expectedOutput(int rank) const {
    switch (call_.collective) {
      case Collective::allReduce:
        return reduced();
      case Collective::reduce:
        return rank == call_.root ? reduced() : std::vector<std::byte>();
      case Collective::reduceScatter:
        return blockOf(reduced(), rank);
      case Collective::broadcast:
        return inputOf(call_.root);
      case Collective::scatter:
        return blockOf(inputOf(call_.root), rank);
      case Collective::allToAll: {
        std::vector<std::byte> all;
        for (int r = 0; r < ranks(); ++r) {
          const auto one = blockOf(inputOf(r), rank);
          all.insert(all.end(), one.begin(), one.end());
        }
        return all;
      }
      default: {
        std::vector<std::byte> all;
        for (int r = 0; r < ranks(); ++r) {
          const auto one = inputOf(r);
          all.insert(all.end(), one.begin(), one.end());
        }
        return all;
      }
    }
  }
  /// The rank's whole memory as it should be: guards and inputs untouched, unless the output lies over them.
  /// What a ReduceScatter in place leaves in the other blocks of its input is nobody's business.
  std::vector<std::byte> expectedMemory(int r) const {
    const PerRank& rank = ranks_[static_cast<size_t>(r)];
    std::vector<std::byte> memory(rank.memory.size(), kUntouched);
    const auto put = [&](const std::byte* at, const std::vector<std::byte>& bytes) {
      if (!bytes.empty()) std::memcpy(memory.data() + (at - rank.memory.data()), bytes.data(), bytes.size());
    };
    put(rank.input, inputOf(r));
    const bool differs = call_.collective == Collective::reduceScatter ||
                         call_.collective == Collective::scatter || call_.collective == Collective::allToAll;
    if (cachedOutput_.empty() || differs) cachedOutput_ = expectedOutput(r);
    if (blocksOf(Buffer::output, r) != 0) {
      if (cachedOutput_.size() != blocksOf(Buffer::output, r) * block_) cachedOutput_ = expectedOutput(r);
      put(rank.output, cachedOutput_);
    }
    return memory;
  }

  Call call_;
  size_t width_;
  size_t block_ = 0;
  std::vector<PerRank> ranks_;
  mutable std::vector<std::byte> cachedOutput_;  // the same for all ranks, but for some collectives
};

/// Every algorithm and collective that exists for this number of ranks.
inline std::vector<Call> everything(int ranks) {
  std::vector<Call> calls;
  for (const Algorithm& algorithm : algorithms()) {
    if (!algorithm.inter.empty()) continue;  // pairs for several hosts have tests of their own
    for (const Collective collective : algorithm.collectives) {
      if (!algorithm.implements(collective, ranks)) continue;
      Call call;
      call.algorithm = algorithm.name;
      call.collective = collective;
      calls.push_back(call);
    }
  }
  return calls;
}

}  // namespace tutti::test
