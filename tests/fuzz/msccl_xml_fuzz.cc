// An MSCCL algorithm file: parsed, and, where it is small, turned into schedules and proved.
#include "algorithms/msccl_import.h"

#include <algorithm>

#include "fuzz.h"

using namespace tutti;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto program = parseMscclXml(fuzz::viewOf(data, size), "fuzz.xml");
  if (!program.isOk()) {
    require(program.status().message().starts_with("fuzz.xml:"), "an error names file and line");
    return 0;
  }
  require(program->ranks() >= 1 && program->ranks() <= kMscclMaxRanks, "ranks are in range");
  size_t steps = 0;
  int32_t largest = program->chunks;
  for (const MscclGpu& gpu : program->gpus) {
    largest = std::max({largest, gpu.inputChunks, gpu.outputChunks, gpu.scratchChunks});
    for (const MscclBlock& block : gpu.blocks)
      for (const MscclStep& step : block.steps) steps += static_cast<size_t>(step.count);
  }
  // The proof takes time; what makes it long are not the bytes.
  if (program->ranks() > 4 || steps > 64 || largest > 32) return 0;
  const auto imported = importMscclProgram(*program);
  if (!imported.isOk()) {
    require(!imported.status().message().empty(), "an error has a text");
  } else {
    require(imported->inPlace || imported->outOfPlace, "what is proved is proved for something");
  }
  return 0;
}
