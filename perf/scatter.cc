#include "common/collective.h"
#include "common/program.h"

namespace tutti::perf {
namespace {

class Scatter : public Collective {
 public:
  const char* name() const override { return "scatter_perf"; }
  const char* function() const override { return "scatter"; }
  bool hasRoot() const override { return true; }
  CallShape shape(size_t elements, size_t typeBytes, int rank, int ranks) const override {
    const size_t block = blockElements(elements, typeBytes, ranks);
    const size_t total = block * static_cast<size_t>(ranks);
    return {total, block, block, 0, block * static_cast<size_t>(rank), total};
  }
  double busFactor(int ranks) const override { return (ranks - 1.0) / ranks; }
  std::vector<Segment> expected(const CallShape& shape, int rank, int, int root) const override {
    return {{0, shape.recv, root, shape.count * static_cast<uint64_t>(rank)}};
  }
  ncclResult_t enqueue(const Call& call) const override {
    return ncclScatter(call.send, call.recv, call.count, call.type, call.root, call.comm, call.stream);
  }
};

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) { return tutti::perf::runProgram(tutti::perf::Scatter(), argc, argv); }
