// An algorithm file in JSON: parsed, and turned into schedules for a few numbers of ranks; what is made reads
// back as itself.
#include "algorithms/algorithm_json.h"

#include "fuzz.h"

using namespace tutti;
using fuzz::require;

namespace {

bool same(const Schedule& a, const Schedule& b) {
  return a.name == b.name && a.collective == b.collective && a.ranks == b.ranks && a.rank == b.rank &&
         a.root == b.root && a.parts == b.parts && a.maxCount == b.maxCount &&
         a.scratchSegments == b.scratchSegments && a.sharedScratch == b.sharedScratch &&
         a.sharedUserBuffers == b.sharedUserBuffers && a.flags == b.flags && a.teams == b.teams &&
         a.lanes == b.lanes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto algorithm = JsonAlgorithm::parse(fuzz::viewOf(data, size), "fuzz.json");
  if (!algorithm.isOk()) {
    require(algorithm.status().message().starts_with("fuzz.json:"), "an error names file and line");
    return 0;
  }
  for (const int32_t ranks : {1, 3, 4}) {
    if (!algorithm->head().isFor(ranks)) continue;
    const int32_t root = algorithm->head().root.value_or(0);
    const auto made = algorithm->schedules(ranks, root);
    if (!made.isOk()) {
      require(made.status().message().starts_with("fuzz.json:"), "an error names file and line");
      continue;
    }
    require(made->size() == static_cast<size_t>(ranks), "there is a schedule a rank");
    size_t steps = 0;
    for (const Schedule& schedule : *made)
      for (const Lane& lane : schedule.lanes)
        for (const Block& block : lane.blocks) steps += block.steps.size();
    // Names with bytes beyond ASCII are written in another way.
    const std::string& name = algorithm->head().name;
    const bool plain =
        name.find_first_not_of("abcdefghijklmnopqrstuvwxyz-\"\\0123456789\n") == std::string::npos;
    if (steps > 1000 || !plain) continue;
    const auto again = JsonAlgorithm::parse(toJson(*made), "again.json");
    require(again.isOk(), "what is written can be read");
    const auto remade = again->schedules(ranks, root);
    require(remade.isOk() && remade->size() == made->size(), "what is written makes schedules");
    for (size_t rank = 0; rank < made->size(); ++rank)
      require(same((*made)[rank], (*remade)[rank]), "what is written makes the same schedules");
  }
  return 0;
}
