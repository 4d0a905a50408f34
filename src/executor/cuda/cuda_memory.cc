#include "executor/cuda/cuda_memory.h"

#include <algorithm>
#include <bit>

namespace tutti {

CudaMemory::~CudaMemory() {
  if (abandoned_) return;
  for (DeviceEvent event : events_) driver_.destroyEvent(device_, event).ignore();
  for (std::byte* memory : memory_) driver_.free(device_, memory).ignore();
  for (std::byte* memory : hostMemory_) driver_.freeHost(memory).ignore();
}

Result<std::byte*> CudaMemory::allocate(size_t bytes) {
  TUTTI_ASSIGN(std::byte * memory, driver_.allocate(device_, bytes));
  memory_.push_back(memory);
  return memory;
}

Result<std::byte*> CudaMemory::allocateHost(size_t bytes) {
  TUTTI_ASSIGN(std::byte * memory, driver_.allocateHost(bytes));
  hostMemory_.push_back(memory);
  return memory;
}

Result<DeviceEvent> CudaMemory::createEvent() {
  TUTTI_ASSIGN(DeviceEvent event, driver_.createEvent(device_));
  events_.push_back(event);
  return event;
}

Result<size_t> LaunchMemory::take(size_t bytes) {
  constexpr size_t kSmallestPiece = 4096;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    Piece& piece = pieces_[i];
    if (piece.isTaken || piece.bytes < bytes) continue;
    if (piece.isUsed) {
      TUTTI_ASSIGN(const bool done, driver_.isDone(device_, piece.event));
      if (!done) continue;
    }
    piece.isUsed = false;
    piece.isTaken = true;
    return i;
  }
  Piece piece;
  piece.bytes = std::bit_ceil(std::max(bytes, kSmallestPiece));
  TUTTI_ASSIGN(piece.event, memory_.createEvent());
  TUTTI_ASSIGN(piece.memory, memory_.allocate(piece.bytes));
  piece.isTaken = true;
  pieces_.push_back(piece);
  return pieces_.size() - 1;
}

Status LaunchMemory::launched(size_t number, bool captured, DeviceStream stream) {
  if (captured) return Status::ok();  // stays taken
  Piece& piece = pieces_[number];
  TUTTI_TRY(driver_.recordEvent(device_, piece.event, stream));  // failed: nobody knows when it is free
  piece.isUsed = true;
  piece.isTaken = false;
  return Status::ok();
}

}  // namespace tutti
