// A rank's memory in tests of collectives.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

namespace tutti::test {

/// Device memory (which peers can map) or plain memory (which they cannot), and a byte behind it, all 0xee.
class Buffer {
 public:
  Buffer(size_t bytes, bool device) : device_(device), plain_(device ? 0 : bytes + 1) {
    if (device_) {
      EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), bytes + 1), cudaSuccess);
    } else {
      data_ = plain_.data();
    }
    std::memset(data_, 0xee, bytes + 1);
  }
  ~Buffer() {
    if (device_) {
      EXPECT_EQ(cudaFree(data_), cudaSuccess);
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() { return data_; }

 private:
  bool device_;
  std::vector<std::byte> plain_;
  std::byte* data_ = nullptr;
};

}  // namespace tutti::test
