#include "common/buffer_check.h"

#include <algorithm>

namespace tutti::perf {
namespace {

size_t usedRecvElements(const Subject& subject) {
  const CallShape& shape = subject.shape;
  if (!subject.inPlace) return shape.recv;
  return std::max(shape.inPlaceSend + shape.send, shape.inPlaceRecv + shape.recv);
}

}  // namespace

Pointers pointersOf(const Subject& subject, int misalignedElements) {
  const auto width = static_cast<size_t>(subject.width());
  const size_t shift = static_cast<size_t>(misalignedElements) * width;
  std::byte* recv = subject.state->recv.data() + shift;
  if (!subject.inPlace) return {subject.state->send.data() + shift, recv};
  return {recv + subject.shape.inPlaceSend * width, recv + subject.shape.inPlaceRecv * width};
}

std::shared_ptr<const Tile> BufferCheck::tileOf(const Subject& subject, int which, size_t end) {
  return job_.tiles.get(*subject.pattern, which, end);
}

Outcome BufferCheck::write(std::byte* target, const Tile& tile, uint64_t first, size_t count) {
  const auto width = static_cast<size_t>(tile.elementBytes());
  for (size_t done = 0; done < count;) {
    const size_t piece = std::min(count - done, kStagingBytes / width);
    tile.write(staging_.data(), first + done, piece);
    const cudaError_t error =
        cudaMemcpy(target + done * width, staging_.data(), piece * width, cudaMemcpyHostToDevice);
    if (error != cudaSuccess) return checkCuda(error, "cudaMemcpy to the device");
    done += piece;
  }
  return Outcome::ok();
}

Outcome BufferCheck::compare(const std::byte* source, const Tile& tile, uint64_t first, size_t count,
                             uint64_t& wrong) {
  const auto width = static_cast<size_t>(tile.elementBytes());
  for (size_t done = 0; done < count;) {
    const size_t piece = std::min(count - done, kStagingBytes / width);
    const cudaError_t error =
        cudaMemcpy(staging_.data(), source + done * width, piece * width, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess) return checkCuda(error, "cudaMemcpy from the device");
    wrong += tile.countWrong(staging_.data(), first + done, piece);
    done += piece;
  }
  return Outcome::ok();
}

Outcome BufferCheck::compareMark(const std::byte* source, size_t bytes, uint64_t& wrong) {
  for (size_t done = 0; done < bytes;) {
    const size_t piece = std::min(bytes - done, kStagingBytes);
    const cudaError_t error = cudaMemcpy(staging_.data(), source + done, piece, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess) return checkCuda(error, "cudaMemcpy from the device");
    const auto end = staging_.begin() + static_cast<std::ptrdiff_t>(piece);
    wrong += piece - static_cast<uint64_t>(std::count(staging_.begin(), end, std::byte{kMark}));
    done += piece;
  }
  return Outcome::ok();
}

Outcome BufferCheck::fill(const Subject& subject) {
  RankState& state = *subject.state;
  const auto width = static_cast<size_t>(subject.width());
  if (const Outcome outcome = checkCuda(cudaSetDevice(state.device), "cudaSetDevice"); !outcome.isOk())
    return outcome;
  const size_t marked = static_cast<size_t>(job_.options.misalign) * width +
                        usedRecvElements(subject) * width + Job::kGuardBytes;
  if (const Outcome outcome = checkCuda(cudaMemset(state.recv.data(), kMark, marked), "cudaMemset");
      !outcome.isOk())
    return outcome;
  const Pointers pointers = pointersOf(subject, job_.options.misalign);
  if (subject.shape.send > 0) {
    const auto tile = tileOf(subject, state.groupRank, subject.shape.send);
    if (const Outcome outcome = write(pointers.send, *tile, 0, subject.shape.send); !outcome.isOk())
      return outcome;
  }
  // The rank's stream does not wait for the null stream, which the copies above used.
  return checkCuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
}

Outcome BufferCheck::countWrong(const Subject& subject, uint64_t& wrong) {
  RankState& state = *subject.state;
  const auto width = static_cast<size_t>(subject.width());
  if (const Outcome outcome = checkCuda(cudaSetDevice(state.device), "cudaSetDevice"); !outcome.isOk())
    return outcome;
  const Pointers pointers = pointersOf(subject, job_.options.misalign);
  size_t covered = 0;
  for (const Segment& segment :
       job_.collective.expected(subject.shape, state.groupRank, state.groupSize, subject.root)) {
    const auto tile = tileOf(subject, segment.which, segment.first + segment.count);
    const std::byte* got = pointers.recv + segment.offset * width;
    if (const Outcome outcome = compare(got, *tile, segment.first, segment.count, wrong); !outcome.isOk())
      return outcome;
    covered = std::max(covered, segment.offset + segment.count);
  }
  const size_t shift = static_cast<size_t>(job_.options.misalign) * width;
  const std::byte* base = state.recv.data() + shift;
  // In place, the rest of the buffer is input.
  const size_t marked = subject.inPlace ? usedRecvElements(subject) : covered;
  const size_t markedBytes = (usedRecvElements(subject) - marked) * width + Job::kGuardBytes;
  if (const Outcome outcome = compareMark(base + marked * width, markedBytes, wrong); !outcome.isOk())
    return outcome;
  if (const Outcome outcome = compareMark(state.recv.data(), shift, wrong); !outcome.isOk()) return outcome;

  if (subject.inPlace || subject.shape.send * width > kCheckedInputBytes || subject.shape.send == 0)
    return Outcome::ok();
  const auto tile = tileOf(subject, state.groupRank, subject.shape.send);
  return compare(pointers.send, *tile, 0, subject.shape.send, wrong);
}

}  // namespace tutti::perf
