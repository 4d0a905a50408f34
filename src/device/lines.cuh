// Messages in lines that carry their own flags (LL, LL128): who finds the flag in a line has its data.
#pragma once

#include "device/line_order.cuh"
#include "device/plan.cuh"
#include "device/reduce.cuh"
#include "device/waits.cuh"

namespace tutti::device::TUTTI_KERNELS {

/// The messages of a step, as lines; pieces follow each other, each from the beginning of a line. movePiece()
/// is called by all threads and gives false when the communicator is aborted.
/// A piece of no bytes is a line too.
template <Protocol kProtocol>
class Lines {
 public:
  TUTTI_DEVICE Lines(const LaneView&, const Step&, int32_t) {}
  template <class Number>
  TUTTI_DEVICE bool movePiece(const Operands&, const Operator<Number>&, uint64_t) {
    return true;
  }
};

/// Of the 8 bytes at `offset`, how many belong to the piece.
TUTTI_DEVICE uint32_t partLeft(uint64_t bytes, uint64_t offset) {
  if (offset >= bytes) return 0;
  return bytes - offset < 8 ? static_cast<uint32_t>(bytes - offset) : 8;
}

/// 8 bytes of memory, fewer at the end of a piece (`left`, at most 8).
TUTTI_DEVICE Chunk<8> loadPart(const std::byte* p, uint32_t left, bool aligned) {
  if (aligned && left == 8) return loadPlain<8>(p);
  uint64_t word = 0;
#pragma unroll 1
  for (uint32_t i = 0; i < left; ++i) word |= static_cast<uint64_t>(p[i]) << (8 * i);
  return bitsAs<Chunk<8>>(word);
}
TUTTI_DEVICE void storePart(std::byte* p, const Chunk<8>& chunk, uint32_t left, bool aligned) {
  if (aligned && left == 8) return storePlain<8>(p, chunk);
  const auto word = bitsAs<uint64_t>(chunk);
#pragma unroll 1
  for (uint32_t i = 0; i < left; ++i) p[i] = static_cast<std::byte>(word >> (8 * i));
}

/// How many lines a thread works on at once. A number is a register, however small.
template <class Number>
TUTTI_DEVICE constexpr int linesUnderWay() {
  return sizeof(typename Number::Stored) == 1 ? 1 : 2;
}

/// Whether all operands in memory lie on multiples of 8.
TUTTI_DEVICE bool alignedTo8(const Operands& o, bool receives) {
  uintptr_t bits = 0;
#pragma unroll 1
  for (uint32_t k = 0; k < o.sourceCount; ++k) {
    if (!receives || k != o.extraAt) bits |= reinterpret_cast<uintptr_t>(o.source(k));
  }
#pragma unroll 1
  for (uint32_t k = 0; k < o.destinationCount; ++k) bits |= reinterpret_cast<uintptr_t>(o.destination(k));
  return bits % 8 == 0;
}

/// Folds what load(k, chunks) brings from memory and receive(chunks) from lines. The first source in memory
/// is asked for before the message is waited for: nothing that another rank wrote before a message of lines
/// is read here without a flag of its own.
template <class Number, int kChunks, class Load, class Receive>
TUTTI_DEVICE bool foldAll(const Operands& o, const Operator<Number>& op, bool receives,
                          Chunk<8> (&chunks)[kChunks], Load&& load, Receive&& receive) {
  Accumulator<Number, 8> sums[kChunks] = {};
  Chunk<8> early[kChunks] = {};
  const uint32_t earlyAt = receives && o.extraAt == 0 ? 1 : 0;
  if (earlyAt < o.sourceCount) load(earlyAt, early);
#pragma unroll 1
  for (uint32_t k = 0; k < o.sourceCount; ++k) {
    if (receives && k == o.extraAt) {
      if (!receive(chunks)) return false;
    } else if (k == earlyAt) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) chunks[c] = early[c];
    } else {
      load(k, chunks);
    }
    if (op.copies) return true;
    if (k == 0) {
      start(op, sums, chunks);
    } else {
      fold(op, sums, chunks);
    }
  }
  finish(op, sums, chunks);
  return true;
}

template <>
class Lines<Protocol::ll> {
 public:
  TUTTI_DEVICE Lines(const LaneView& view, const Step& step, int32_t peer)
      : view_(view), peer_(peer), ordered_(view.program().laneCount > 1) {
    if (step.receives) in_ = reinterpret_cast<const LineLL*>(view.shared.incoming);
    if (step.sends) out_ = reinterpret_cast<LineLL*>(view.shared.outgoing);
  }

  template <class Number>
  TUTTI_DEVICE bool movePiece(const Operands& o, const Operator<Number>& op, uint64_t bytes) {
    return moveLines(o, op, bytes, bytes == 0 ? 1 : linesOfPieceLL(bytes));
  }

 private:
  template <class Number>
  TUTTI_DEVICE bool moveLines(const Operands& o, const Operator<Number>& op, uint64_t bytes, uint64_t lines) {
    constexpr int kUnroll = linesUnderWay<Number>();
    const bool aligned = alignedTo8(o, in_ != nullptr);
    for (uint64_t first = threadIdx.x; first < lines; first += static_cast<uint64_t>(blockDim.x) * kUnroll) {
      const auto line = [&](int u) { return first + static_cast<uint32_t>(u) * blockDim.x; };
      const auto left = [&](int u) { return partLeft(bytes, line(u) * kDataLL); };
      Chunk<8> chunks[kUnroll] = {};
      const auto receiveAll = [&](Chunk<8>(&to)[kUnroll]) { return receive(first, lines, to); };
      const auto load = [&](uint32_t k, Chunk<8>(&to)[kUnroll]) {
        const std::byte* from = o.source(k);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) to[u] = loadPart(from + line(u) * kDataLL, left(u), aligned);
      };
      if (!foldAll(o, op, in_ != nullptr, chunks, load, receiveAll)) return false;
#pragma unroll 1
      for (uint32_t k = 0; k < o.destinationCount; ++k) {
        std::byte* to = o.destination(k);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) storePart(to + line(u) * kDataLL, chunks[u], left(u), aligned);
      }
      if (out_ == nullptr) continue;
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (line(u) < lines) {
          storeLine(out_ + line(u), chunks[u], static_cast<uint32_t>(view_.shared.outgoingNumber), ordered_);
        }
      }
    }
    if (in_ != nullptr) in_ += lines;
    if (out_ != nullptr) out_ += lines;
    return true;
  }

  template <int kUnroll>
  TUTTI_DEVICE bool receive(uint64_t first, uint64_t lines, Chunk<8> (&to)[kUnroll]) {
    const auto flag = static_cast<uint32_t>(view_.shared.incomingNumber);
    Spin spin(view_, WaitFor::data, peer_);
    for (;;) {
      bool all = true;
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const uint64_t line = first + static_cast<uint32_t>(u) * blockDim.x;
        if (line < lines) all = loadLine(in_ + line, flag, &to[u], ordered_) && all;
      }
      if (all) break;
      if (!spin.again()) return false;
    }
    spin.end();
    return true;
  }

  const LaneView& view_;
  int32_t peer_;
  bool ordered_;
  const LineLL* in_ = nullptr;
  LineLL* out_ = nullptr;
};

/// Eight threads a line: 16 bytes each, of which the last 8 of the last thread are the flag. Warps go through
/// the lines together.
template <>
class Lines<Protocol::ll128> {
 public:
  TUTTI_DEVICE Lines(const LaneView& view, const Step& step, int32_t peer) : view_(view), peer_(peer) {
    if (step.receives) in_ = reinterpret_cast<const LineLL128*>(view.shared.incoming);
    if (step.sends) out_ = reinterpret_cast<LineLL128*>(view.shared.outgoing);
  }

  template <class Number>
  TUTTI_DEVICE bool movePiece(const Operands& o, const Operator<Number>& op, uint64_t bytes) {
    return moveLines(o, op, bytes, bytes == 0 ? 1 : linesOfPieceLL128(bytes));
  }

 private:
  static constexpr uint32_t kThreads = 8;  // of a line
  static constexpr uint32_t kLinesOfWarp = kWarp / kThreads;

  TUTTI_DEVICE static uint32_t part() { return threadIdx.x % kThreads; }
  TUTTI_DEVICE static bool holdsFlag() { return part() == kThreads - 1; }

  template <class Number>
  TUTTI_DEVICE bool moveLines(const Operands& o, const Operator<Number>& op, uint64_t bytes, uint64_t lines) {
    constexpr int kUnroll = linesUnderWay<Number>();
    constexpr int kChunks = 2 * kUnroll;
    const bool aligned = alignedTo8(o, in_ != nullptr);
    const uint64_t stride = static_cast<uint64_t>(blockDim.x / kWarp) * kLinesOfWarp;
    for (uint64_t first = static_cast<uint64_t>(threadIdx.x / kWarp) * kLinesOfWarp; first < lines;
         first += stride * kUnroll) {
      const uint64_t line = first + threadIdx.x % kWarp / kThreads;
      const uint64_t begin = line * kDataLL128 + part() * 16;
      const auto offset = [&](int c) {
        return begin + static_cast<uint64_t>(c / 2) * stride * kDataLL128 + static_cast<uint32_t>(c % 2) * 8;
      };
      const auto left = [&](int c) { return c % 2 == 1 && holdsFlag() ? 0 : partLeft(bytes, offset(c)); };
      Chunk<8> chunks[kChunks] = {};
      const auto receiveAll = [&](Chunk<8>(&to)[kChunks]) { return receive(line, stride, lines, to); };
      const auto load = [&](uint32_t k, Chunk<8>(&to)[kChunks]) {
        const std::byte* from = o.source(k);
#pragma unroll
        for (int c = 0; c < kChunks; ++c) to[c] = loadPart(from + offset(c), left(c), aligned);
      };
      if (!foldAll(o, op, in_ != nullptr, chunks, load, receiveAll)) return false;
#pragma unroll 1
      for (uint32_t k = 0; k < o.destinationCount; ++k) {
        std::byte* to = o.destination(k);
#pragma unroll
        for (int c = 0; c < kChunks; ++c) storePart(to + offset(c), chunks[c], left(c), aligned);
      }
      if (out_ != nullptr) send(line, stride, lines, chunks);
    }
    if (in_ != nullptr) in_ += lines;
    if (out_ != nullptr) out_ += lines;
    return true;
  }

  /// By whole warps.
  template <int kChunks>
  TUTTI_DEVICE bool receive(uint64_t line, uint64_t stride, uint64_t lines, Chunk<8> (&to)[kChunks]) {
    Spin spin(view_, WaitFor::data, peer_);
    for (;;) {
      bool all = true;
#pragma unroll
      for (int u = 0; u < kChunks / 2; ++u) {
        if (line + u * stride < lines) {
          all = loadLinePart(in_ + line + u * stride, part(), view_.shared.incomingNumber, &to[2 * u],
                             &to[2 * u + 1]) &&
                all;
        }
      }
      if (__all_sync(kAllLanes, all)) break;
      if (!__all_sync(kAllLanes, spin.again())) return false;
    }
    spin.end();
    afterFlags();
#pragma unroll
    for (int u = 0; u < kChunks / 2; ++u) {
      if (line + u * stride < lines)
        loadLineData(in_ + line + u * stride, part(), &to[2 * u], &to[2 * u + 1]);
    }
    return true;
  }

  template <int kChunks>
  TUTTI_DEVICE void send(uint64_t line, uint64_t stride, uint64_t lines, const Chunk<8> (&chunks)[kChunks]) {
    __syncwarp();  // the eight stores of a line leave together
#pragma unroll
    for (int u = 0; u < kChunks / 2; ++u) {
      if (line + u * stride < lines)
        storeLinePart(out_ + line + u * stride, part(), view_.shared.outgoingNumber, chunks[2 * u],
                      chunks[2 * u + 1]);
    }
    beforeFlags();
#pragma unroll
    for (int u = 0; u < kChunks / 2; ++u) {
      if (line + u * stride < lines)
        storeLineFlag(out_ + line + u * stride, part(), view_.shared.outgoingNumber);
    }
  }

  const LaneView& view_;
  int32_t peer_;
  const LineLL128* in_ = nullptr;
  LineLL128* out_ = nullptr;
};

}  // namespace tutti::device::TUTTI_KERNELS
