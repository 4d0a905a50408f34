#include "common/collective.h"
#include "common/program.h"
#include "tutti/tutti.h"

namespace tutti::perf {
namespace {

/// Blocks of 0 to 4 units, by the distance from sender to receiver; so every rank sends and receives as much
/// as any other, but in parts that differ, some of them empty.
class AllToAllv : public Collective {
 public:
  const char* name() const override { return "alltoallv_perf"; }
  bool hasInPlace() const override { return false; }
  CallShape shape(size_t elements, size_t, int, int ranks) const override {
    const size_t units = unitsOfAll(ranks);
    const size_t total = elements / units * units;
    return {total, total, total / static_cast<size_t>(ranks), 0, 0, total};
  }
  double busFactor(int ranks) const override { return (ranks - 1.0) / ranks; }
  std::vector<Segment> expected(const CallShape& shape, int rank, int ranks, int) const override {
    std::vector<Segment> blocks;
    size_t offset = 0;
    for (int from = 0; from < ranks; ++from) {
      const Blocks sent(from, ranks, shape.total, Direction::to);
      const auto own = static_cast<size_t>(rank);
      blocks.push_back({offset, sent.counts[own], from, sent.offsets[own]});
      offset += sent.counts[own];
    }
    return blocks;
  }
  ncclResult_t enqueue(const Call& call) const override {
    const Blocks sent(call.rank, call.ranks, call.total, Direction::to);
    const Blocks received(call.rank, call.ranks, call.total, Direction::from);
    return tuttiAlltoAllv(call.send, sent.counts.data(), sent.offsets.data(), call.recv,
                          received.counts.data(), received.offsets.data(), call.type, call.comm, call.stream);
  }

 private:
  enum class Direction { to, from };

  static size_t unitsAt(int distance) { return (static_cast<size_t>(distance) * 3 + 1) % 5; }
  static size_t unitsOfAll(int ranks) {
    size_t units = 0;
    for (int distance = 0; distance < ranks; ++distance) units += unitsAt(distance);
    return units;
  }
  /// What one rank sends to (or receives from) each rank, blocks one behind the other.
  struct Blocks {
    Blocks(int rank, int ranks, size_t total, Direction direction) {
      const size_t unit = total / unitsOfAll(ranks);
      size_t offset = 0;
      for (int other = 0; other < ranks; ++other) {
        const int distance = direction == Direction::to ? other - rank : rank - other;
        counts.push_back(unit * unitsAt((distance + ranks) % ranks));
        offsets.push_back(offset);
        offset += counts.back();
      }
    }
    std::vector<size_t> counts;
    std::vector<size_t> offsets;
  };
};

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) { return tutti::perf::runProgram(tutti::perf::AllToAllv(), argc, argv); }
