// A CUDA driver without GPUs, in a library of its own: memory is the host's, streams run nothing, and every
// call is noted. What tests set and read lies in one struct.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/device_program.h"

namespace tutti::test {

struct FakeContext {
  int device = 0;
  bool isRetained = false;
};

struct FakeStream {
  FakeContext* context = nullptr;
  unsigned flags = 0;
  bool isBusy = false;
  int captureState = 0;
  unsigned long long captureId = 0;
};

struct FakeEvent {
  FakeContext* context = nullptr;
  unsigned flags = 0;
  FakeStream* recorded = nullptr;
};

struct FakeFunction {
  std::string name;
  FakeContext* context = nullptr;
  bool isLoaded = false;
  int mostShared = 48 << 10;
};

struct FakeLaunch {
  std::string kernel;
  int device = -1;
  unsigned grid[3] = {};
  unsigned block[3] = {};
  unsigned sharedBytes = 0;
  void* stream = nullptr;
  device::LaunchArguments arguments;
};

struct FakeMemory {
  size_t bytes = 0;
  int device = -1;
  bool isHost = false;
  unsigned flags = 0;
};

struct FakeCuda {
  // What tests set.
  int version = 12020;
  int devices = 2;
  std::set<std::string> missing;      // functions that there are not
  std::map<std::string, int> errors;  // by function: what it answers
  int sharedOptin = 227 << 10;

  // What tests read.
  std::vector<std::string> calls;       // names
  std::map<std::string, int> versions;  // that functions were asked for in
  std::vector<FakeLaunch> launches;
  std::map<std::string, FakeFunction> functions;  // "device/name"
  std::map<const void*, FakeMemory> memory;
  std::set<std::pair<int, int>> peers;
  std::set<void*> copyStreams;      // that copies and fills were enqueued on
  std::vector<FakeContext*> stack;  // of the (one) calling thread
  int captureMode = 0;              // of it: 0 global
  int relaxedCalls = 0;             // calls that a capture forbids, made in relaxed mode
  int forbiddenCalls = 0;           // and in another mode

  FakeContext contexts[8];
  int called(const std::string& name) const {
    int count = 0;
    for (const std::string& call : calls) count += call == name;
    return count;
  }
};

/// Symbol of the library: FakeCuda* fakeCuda(void).
using FakeCudaGet = FakeCuda* (*)();

}  // namespace tutti::test
