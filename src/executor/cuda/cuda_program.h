// Flat programs on a device: flattened and uploaded once for each schedule.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "algorithms/schedule.h"
#include "base/device_program.h"
#include "base/status.h"
#include "executor/cuda/cuda_memory.h"
#include "executor/cuda/flatten.h"

namespace tutti {

struct CudaProgram {
  std::shared_ptr<const Schedule> schedule;  // kept, so that its address stands for it
  FlatProgram flat;
  const device::Program* onDevice = nullptr;
  uint32_t mostLinks = 0;          // of a lane
  uint32_t connectedChannels = 0;  // whose connections are made
  bool isCaptured = false;         // a graph may run it again
  bool toldSimple = false;         // it was logged that another protocol is impossible
  uint64_t lastUse = 0;
  size_t chunk = 0;

  const device::Program& head() const { return flat.head(); }
};

/// Bounded: when there are many, those whose schedule nobody else keeps go, once no kernel can be reading
/// them.
class CudaPrograms {
 public:
  explicit CudaPrograms(CudaMemory& memory) : memory_(memory) {}

  /// Valid until the next get(). `isIdle` is asked before something goes.
  Result<CudaProgram*> get(const std::shared_ptr<const Schedule>& schedule,
                           const std::function<bool()>& isIdle);
  /// For a launch of several: while it exists, what get() gives stays.
  class Hold {
   public:
    explicit Hold(CudaPrograms& programs) : programs_(programs) { programs_.held_ = true; }
    ~Hold() { programs_.held_ = false; }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    CudaPrograms& programs_;
  };

  uint64_t uploaded() const { return uploaded_; }
  size_t size() const { return programs_.size(); }
  static constexpr size_t kMost = 1024;

 private:
  struct Chunk {
    std::byte* base = nullptr;
    size_t bytes = 0;
    size_t used = 0;
    size_t programs = 0;
  };
  Result<size_t> chunkFor(size_t bytes);
  void evict();

  CudaMemory& memory_;
  std::unordered_map<const Schedule*, std::unique_ptr<CudaProgram>> programs_;
  CudaProgram* latest_ = nullptr;
  std::vector<Chunk> chunks_;
  uint64_t uses_ = 0;
  uint64_t uploaded_ = 0;
  bool held_ = false;
};

}  // namespace tutti
