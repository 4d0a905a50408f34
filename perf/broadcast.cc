#include "common/collective.h"
#include "common/program.h"

namespace tutti::perf {
namespace {

class Broadcast : public Collective {
 public:
  const char* name() const override { return "broadcast_perf"; }
  const char* function() const override { return "broadcast"; }
  bool hasRoot() const override { return true; }
  CallShape shape(size_t elements, size_t, int, int) const override {
    return {elements, elements, elements, 0, 0, elements};
  }
  double busFactor(int) const override { return 1; }
  std::vector<Segment> expected(const CallShape& shape, int, int, int root) const override {
    return {{0, shape.recv, root, 0}};
  }
  ncclResult_t enqueue(const Call& call) const override {
    return ncclBroadcast(call.send, call.recv, call.count, call.type, call.root, call.comm, call.stream);
  }
};

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) { return tutti::perf::runProgram(tutti::perf::Broadcast(), argc, argv); }
