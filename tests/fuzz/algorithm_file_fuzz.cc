// An algorithm file in either form, through everything: parsed, made into schedules, and, where it is small,
// proved.
#include "algorithms/algorithm_files.h"
#include "algorithms/algorithm_json.h"
#include "algorithms/proof_size.h"

#include "fuzz.h"

using namespace tutti;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::viewOf(data, size);
  // What makes a proof long are not the bytes: only small ones are made here.
  if (const auto program = parseMscclXml(text, "fuzz"); program.isOk()) {
    int64_t moves = 0;
    int64_t scratch = 0;
    for (const MscclGpu& gpu : program->gpus) {
      scratch += gpu.scratchChunks;
      for (const MscclBlock& block : gpu.blocks)
        for (const MscclStep& step : block.steps) moves += step.count;
    }
    if (program->ranks() > 8 || moves > 300 || program->chunks > 64 || scratch > 500) return 0;
  }
  if (const auto algorithm = JsonAlgorithm::parse(text, "fuzz"); algorithm.isOk()) {
    const int32_t ranks = algorithm->head().ranks.empty() ? 4 : algorithm->head().ranks.front();
    if (ranks > 8) return 0;
    const auto made = algorithm->schedules(ranks, algorithm->head().root.value_or(0));
    if (made.isOk()) {
      const ProofSize proof = proofSize(*made);
      if (proof.cells > 2000 || proof.moves > 1000 || proof.lanes > 64) return 0;
    }
  }
  const auto imported = importAlgorithmText(text, "fuzz");
  if (!imported.isOk()) {
    require(imported.status().message().starts_with("fuzz"), "an error names the file");
    require(imported.status().code() == ncclInvalidUsage, "a bad file is the user's mistake");
    return 0;
  }
  require(imported->inPlace || imported->outOfPlace, "what is proved is proved for something");
  require(!imported->schedules.empty(), "what is proved has schedules");
  return 0;
}
