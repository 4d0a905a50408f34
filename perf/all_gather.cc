#include "common/collective.h"
#include "common/program.h"

namespace tutti::perf {
namespace {

class AllGather : public Collective {
 public:
  const char* name() const override { return "all_gather_perf"; }
  const char* function() const override { return "allgather"; }
  CallShape shape(size_t elements, size_t typeBytes, int rank, int ranks) const override {
    const size_t block = blockElements(elements, typeBytes, ranks);
    const size_t total = block * static_cast<size_t>(ranks);
    return {block, total, block, block * static_cast<size_t>(rank), 0, total};
  }
  double busFactor(int ranks) const override { return (ranks - 1.0) / ranks; }
  std::vector<Segment> expected(const CallShape& shape, int, int ranks, int) const override {
    std::vector<Segment> blocks;
    for (int from = 0; from < ranks; ++from)
      blocks.push_back({shape.count * static_cast<size_t>(from), shape.count, from, 0});
    return blocks;
  }
  ncclResult_t enqueue(const Call& call) const override {
    return ncclAllGather(call.send, call.recv, call.count, call.type, call.comm, call.stream);
  }
};

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) { return tutti::perf::runProgram(tutti::perf::AllGather(), argc, argv); }
