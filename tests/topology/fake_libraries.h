// NVML, libibverbs and the CUDA driver of a machine that does not exist: function tables whose answers come
// from a description. One machine at a time: the libraries' functions have no argument for more.
#pragma once

#include <string>
#include <vector>

#include "topology/detect.h"

namespace tutti::test {

/// One GPU as NVML shows it. NVLinks in order; a target of null is one that is down.
struct FakeGpu {
  std::string busId;
  int major = 9;
  int minor = 0;
  struct Link {
    std::string target;
    int type = 2;  // NVSwitch
    bool active = true;
    bool p2p = true;
  };
  std::vector<Link> links;
  std::vector<uint32_t> c2c;  // MB/s of each link; 0: down
  uint8_t cluster = 0;        // all bytes of its fabric cluster
  uint32_t clique = 0;
};

struct FakePort {
  int state = 4;
  uint8_t width = 2;
  uint8_t speed = 64;
  uint8_t layer = 2;
  std::vector<uint8_t> gids;  // first byte of each; 0: not in use
};
struct FakeRdmaDevice {
  std::string name;
  uint64_t guid = 0;
  int maxQueuePairs = 131072;
  bool opens = true;
  std::vector<FakePort> ports;
};

/// What the fakes answer from. Changing it changes their answers.
struct FakeMachine {
  std::vector<FakeGpu> gpus;
  std::vector<FakeRdmaDevice> rdma;
  int nvmlInit = 0;  // what init() answers
  int nvmlStarted = 0;
  int rdmaOpen = 0;
};
FakeMachine& fakeMachine();

NvmlApi fakeNvml();
VerbsApi fakeVerbs();
CudaDriverApi fakeCuda();
/// All three; no hwloc.
MachineLibraries fakeLibraries();

/// Sets the fake machine up as the GPUs and ports of a description.
void pretend(const SystemDescription& system);

}  // namespace tutti::test
