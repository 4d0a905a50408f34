#include "common/collective.h"
#include "common/program.h"

namespace tutti::perf {
namespace {

class AllReduce : public Collective {
 public:
  const char* name() const override { return "all_reduce_perf"; }
  const char* function() const override { return "allreduce"; }
  bool reduces() const override { return true; }
  CallShape shape(size_t elements, size_t, int, int) const override {
    return {elements, elements, elements, 0, 0, elements};
  }
  double busFactor(int ranks) const override { return 2.0 * (ranks - 1) / ranks; }
  std::vector<Segment> expected(const CallShape& shape, int, int, int) const override {
    return {{0, shape.recv, kResult, 0}};
  }
  ncclResult_t enqueue(const Call& call) const override {
    return ncclAllReduce(call.send, call.recv, call.count, call.type, call.op, call.comm, call.stream);
  }
};

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) { return tutti::perf::runProgram(tutti::perf::AllReduce(), argc, argv); }
