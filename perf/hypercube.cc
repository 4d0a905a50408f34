#include "common/collective.h"
#include "common/datatype.h"
#include "common/program.h"

#include <algorithm>
#include <bit>

namespace tutti::perf {
namespace {

/// An AllGather made of sends and receives: in round k, each rank exchanges all that it has with the rank
/// whose number differs in bit k. Where the ranks are no power of two, those beyond it first give their block
/// to the rank that differs in the highest bit, and get everything from there in the end.
class Hypercube : public Collective {
 public:
  const char* name() const override { return "hypercube_perf"; }
  CallShape shape(size_t elements, size_t typeBytes, int rank, int ranks) const override {
    const size_t block = blockElements(elements, typeBytes, ranks);
    const size_t total = block * static_cast<size_t>(ranks);
    return {block, total, block, block * static_cast<size_t>(rank), 0, total};
  }
  /// As nccl-tests: what a rank receives, which is also what crosses its link.
  double algorithmFactor(int ranks) const override { return (ranks - 1.0) / ranks; }
  double busFactor(int) const override { return 1; }
  int rounds(int ranks) const override {
    return 2 + std::bit_width(static_cast<unsigned>(coreOf(ranks))) - 1;
  }
  std::vector<Segment> expected(const CallShape& shape, int, int ranks, int) const override {
    std::vector<Segment> blocks;
    for (int from = 0; from < ranks; ++from)
      blocks.push_back({shape.count * static_cast<size_t>(from), shape.count, from, 0});
    return blocks;
  }
  ncclResult_t enqueue(const Call& call) const override {
    if (const ncclResult_t result = ncclGroupStart(); result != ncclSuccess) return result;
    Messages messages(call);
    const int core = coreOf(call.ranks);
    const bool beyond = call.rank >= core;
    const int partner = beyond ? call.rank - core : call.rank + core;
    if (call.round == 0) {
      messages.ownBlock();
      if (beyond) {
        messages.sendOwn(partner);
      } else if (partner < call.ranks) {
        messages.receive(partner, partner, 1);
      }
    } else if (call.round == rounds(call.ranks) - 1) {
      // The others' blocks: all but the one that the rank has already.
      if (beyond) {
        messages.receive(partner, 0, call.rank);
        messages.receive(partner, call.rank + 1, call.ranks - call.rank - 1);
      } else if (partner < call.ranks) {
        messages.send(partner, 0, partner);
        messages.send(partner, partner + 1, call.ranks - partner - 1);
      }
    } else if (!beyond) {
      const int bit = 1 << (call.round - 1);
      const int peer = call.rank ^ bit;
      const int mine = call.rank & ~(bit - 1);
      const int theirs = mine ^ bit;
      // The blocks of this part of the cube, and those that came from beyond it.
      const auto folded = [&](int first) { return std::clamp(call.ranks - core - first, 0, bit); };
      messages.send(peer, mine, bit);
      messages.receive(peer, theirs, bit);
      messages.send(peer, mine + core, folded(mine));
      messages.receive(peer, theirs + core, folded(theirs));
    }
    const ncclResult_t end = ncclGroupEnd();
    return messages.result != ncclSuccess ? messages.result : end;
  }

 private:
  /// The largest power of two that is not more than `ranks`.
  static int coreOf(int ranks) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks))); }

  /// Messages of whole blocks between receive buffers; keeps the first error.
  struct Messages {
    explicit Messages(const Call& theCall) : call(theCall) {
      for (const DataType& type : dataTypes())
        if (type.nccl == call.type) blockBytes = call.count * static_cast<size_t>(type.bytes);
    }
    std::byte* block(int number) const {
      return static_cast<std::byte*>(call.recv) + static_cast<size_t>(number) * blockBytes;
    }
    void note(ncclResult_t next) {
      if (result == ncclSuccess) result = next;
    }
    void send(int peer, int first, int blocks) {
      if (blocks > 0)
        note(ncclSend(block(first), call.count * static_cast<size_t>(blocks), call.type, peer, call.comm,
                      call.stream));
    }
    void receive(int peer, int first, int blocks) {
      if (blocks > 0)
        note(ncclRecv(block(first), call.count * static_cast<size_t>(blocks), call.type, peer, call.comm,
                      call.stream));
    }
    void sendOwn(int peer) { note(ncclSend(call.send, call.count, call.type, peer, call.comm, call.stream)); }
    /// From the send buffer to its place.
    void ownBlock() {
      if (block(call.rank) == call.send) return;
      sendOwn(call.rank);
      receive(call.rank, call.rank, 1);
    }
    const Call& call;
    size_t blockBytes = 0;
    ncclResult_t result = ncclSuccess;
  };
};

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) { return tutti::perf::runProgram(tutti::perf::Hypercube(), argc, argv); }
