#include "common/collective.h"
#include "common/program.h"

namespace tutti::perf {
namespace {

/// Every rank sends to the next and receives from the one before it. Sending and receiving in one buffer
/// would be a race, so there is no in-place form.
class SendRecv : public Collective {
 public:
  const char* name() const override { return "sendrecv_perf"; }
  bool hasInPlace() const override { return false; }
  CallShape shape(size_t elements, size_t, int, int) const override {
    return {elements, elements, elements, 0, 0, elements};
  }
  double busFactor(int) const override { return 1; }
  std::vector<Segment> expected(const CallShape& shape, int rank, int ranks, int) const override {
    return {{0, shape.recv, (rank + ranks - 1) % ranks, 0}};
  }
  ncclResult_t enqueue(const Call& call) const override {
    const int next = (call.rank + 1) % call.ranks;
    const int previous = (call.rank + call.ranks - 1) % call.ranks;
    if (const ncclResult_t result = ncclGroupStart(); result != ncclSuccess) return result;
    const ncclResult_t sent = ncclSend(call.send, call.count, call.type, next, call.comm, call.stream);
    const ncclResult_t received =
        ncclRecv(call.recv, call.count, call.type, previous, call.comm, call.stream);
    const ncclResult_t end = ncclGroupEnd();
    if (sent != ncclSuccess) return sent;
    return received != ncclSuccess ? received : end;
  }
};

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) { return tutti::perf::runProgram(tutti::perf::SendRecv(), argc, argv); }
