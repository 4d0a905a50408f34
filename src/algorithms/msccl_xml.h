// Reads the algorithm files of MSCCL (Microsoft Collective Communication Library): XML, one program a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/schedule.h"
#include "base/status.h"

namespace tutti {

/// One <step>. The letters are MSCCL's: s send, r recv, c copy, rr receive and reduce, re local reduce.
struct MscclStep {
  enum class Type : uint8_t { s, r, rcs, rrs, rrc, rrcs, cpy, re, nop };
  Type type = Type::nop;
  char srcBuffer = 'i';  // i, o, s(cratch)
  char dstBuffer = 'i';
  int32_t srcOffset = 0;  // chunks
  int32_t dstOffset = 0;
  int32_t count = 1;
  int32_t dependsOnBlock = -1;  // thread block of the same GPU; -1: none
  int32_t dependsOnStep = -1;   // wait until that step of it is done
  bool hasDependents = false;
  int32_t line = 0;
};

inline bool readsMemory(MscclStep::Type type) {
  using enum MscclStep::Type;
  return type != r && type != rcs && type != nop;
}
inline bool writesMemory(MscclStep::Type type) {
  using enum MscclStep::Type;
  return type != s && type != rrs && type != nop;
}

/// One <tb>: steps that run in order, with one peer to send to and one to receive from (-1: none).
struct MscclBlock {
  int32_t sendPeer = -1;
  int32_t recvPeer = -1;
  int32_t channel = 0;
  std::vector<MscclStep> steps;
  int32_t line = 0;
};

struct MscclGpu {
  int32_t inputChunks = 0;
  int32_t outputChunks = 0;
  int32_t scratchChunks = 0;
  std::vector<MscclBlock> blocks;
};

/// One <algo>, checked in itself: all numbers in range, all references point to something.
struct MscclProgram {
  std::string file;
  std::string name;
  Collective collective = Collective::allReduce;
  int32_t chunks = 1;  // nchunksperloop: the chunks of the larger one of input and output
  bool inPlace = false;
  bool outOfPlace = true;
  uint64_t minBytes = 0;
  uint64_t maxBytes = UINT64_MAX;
  std::vector<MscclGpu> gpus;

  int32_t ranks() const { return static_cast<int32_t>(gpus.size()); }
  /// Chunks of one block of the collective.
  int32_t parts() const;
};

/// Largest file, and largest numbers in it, that are accepted.
constexpr size_t kMscclMaxFileBytes = 16u << 20;
constexpr int32_t kMscclMaxRanks = 1024;
constexpr int32_t kMscclMaxBlocks = 64;   // thread blocks of a GPU
constexpr int32_t kMscclMaxSteps = 4096;  // of a thread block
constexpr int32_t kMscclMaxChunks = 65536;

/// Parses the text of a file; `fileName` is for messages only. Errors (ncclInvalidUsage) name file, line,
/// element, attribute and reason. Handles any bytes: never crashes, never uses more than a small multiple of
/// the text's size.
Result<MscclProgram> parseMscclXml(std::string_view text, std::string_view fileName);

/// Reads and parses a file.
Result<MscclProgram> readMscclXml(const std::string& path);

}  // namespace tutti
