#include "common/collective.h"
#include "common/program.h"

namespace tutti::perf {
namespace {

class Reduce : public Collective {
 public:
  const char* name() const override { return "reduce_perf"; }
  const char* function() const override { return "reduce"; }
  bool reduces() const override { return true; }
  bool hasRoot() const override { return true; }
  CallShape shape(size_t elements, size_t, int, int) const override {
    return {elements, elements, elements, 0, 0, elements};
  }
  double busFactor(int) const override { return 1; }
  std::vector<Segment> expected(const CallShape& shape, int rank, int, int root) const override {
    if (rank != root) return {};  // the receive buffer of other ranks is not used
    return {{0, shape.recv, kResult, 0}};
  }
  ncclResult_t enqueue(const Call& call) const override {
    return ncclReduce(call.send, call.recv, call.count, call.type, call.op, call.root, call.comm,
                      call.stream);
  }
};

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) { return tutti::perf::runProgram(tutti::perf::Reduce(), argc, argv); }
