#include "executor/cuda/cuda_program.h"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

// Some dozens of programs: allocating device memory is slow, and may wait for kernels.
constexpr size_t kChunkBytes = size_t{256} << 10;
constexpr size_t kProgramAlign = 128;

size_t programBytes(const FlatProgram& flat) {
  return (flat.bytes().size() + kProgramAlign - 1) / kProgramAlign * kProgramAlign;
}

}  // namespace

Result<CudaProgram*> CudaPrograms::get(const std::shared_ptr<const Schedule>& schedule,
                                       const std::function<bool()>& isIdle) {
  ++uses_;
  if (latest_ != nullptr && latest_->schedule == schedule) {
    latest_->lastUse = uses_;
    return latest_;
  }
  auto found = programs_.find(schedule.get());
  if (found == programs_.end()) {
    if (programs_.size() >= kMost && !held_ && isIdle()) evict();
    TUTTI_ASSIGN(FlatProgram flat, flatten(*schedule));
    TUTTI_ASSIGN(const size_t number, chunkFor(programBytes(flat)));
    Chunk& chunk = chunks_[number];
    std::byte* memory = chunk.base + chunk.used;
    TUTTI_TRY(memory_.upload(memory, flat.bytes().data(), flat.bytes().size()));
    chunk.used += programBytes(flat);
    ++chunk.programs;
    ++uploaded_;
    auto program = std::make_unique<CudaProgram>(CudaProgram{schedule, std::move(flat)});
    program->onDevice = static_cast<const device::Program*>(static_cast<const void*>(memory));
    program->chunk = number;
    for (uint32_t l = 0; l < program->head().laneCount; ++l)
      program->mostLinks = std::max(program->mostLinks, program->head().lanes()[l].linkCount);
    found = programs_.emplace(schedule.get(), std::move(program)).first;
  }
  latest_ = found->second.get();
  latest_->lastUse = uses_;
  return latest_;
}

Result<size_t> CudaPrograms::chunkFor(size_t bytes) {
  for (size_t i = 0; i < chunks_.size(); ++i)
    if (chunks_[i].bytes - chunks_[i].used >= bytes) return i;
  Chunk chunk;
  chunk.bytes = std::max(bytes, kChunkBytes);
  TUTTI_ASSIGN(chunk.base, memory_.allocate(chunk.bytes));
  chunks_.push_back(chunk);
  return chunks_.size() - 1;
}

/// The longest unused ones: half of those that may go. A chunk is written again once it is empty.
void CudaPrograms::evict() {
  latest_ = nullptr;
  std::vector<CudaProgram*> unused;
  for (const auto& [key, program] : programs_)
    if (program->schedule.use_count() == 1 && !program->isCaptured) unused.push_back(program.get());
  std::ranges::sort(unused, {}, [](const CudaProgram* program) { return program->lastUse; });
  unused.resize((unused.size() + 1) / 2);
  for (const CudaProgram* program : unused) {
    Chunk& chunk = chunks_[program->chunk];
    if (--chunk.programs == 0) chunk.used = 0;
    programs_.erase(program->schedule.get());
  }
}

}  // namespace tutti
