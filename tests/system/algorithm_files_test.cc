// Algorithms from files in jobs: they run, and what is wrong with a file fails all ranks with the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/files.h"
#include "system/log.h"
#include "tutti/tutti.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kExamples = std::string(TUTTI_SOURCE_DIR) + "/examples/algorithms";

/// Files of one test.
class Files {
 public:
  Files() : folder_(testing::TempDir() + "/tutti-files-XXXXXX") {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  ~Files() { std::filesystem::remove_all(folder_); }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  /// Path of a copy of an example in which `from` is `to`.
  std::string copy(const std::string& example, const std::string& name, const std::string& from = "",
                   const std::string& to = "") const {
    std::string text = test::contentOf(kExamples + "/" + example);
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos);
    return write(name, text.replace(at, from.size(), to));
  }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }

 private:
  std::string folder_;
};

enum class Kind { outOfPlace, inPlace, mixed };

/// Sums whose exact values are known, of vectors of odd lengths. 0: all right.
int checkSums(Rank& self, const ChildSide& parent) {
  for (const Kind kind : {Kind::outOfPlace, Kind::inPlace, Kind::mixed})
    for (const size_t count : {size_t{1}, size_t{1001}, size_t{200003}}) {
      const bool inPlace = kind == Kind::inPlace || (kind == Kind::mixed && self.rank % 2 == 0);
      std::vector<int> input(count), output(count, -1);
      for (size_t i = 0; i < count; ++i) input[i] = static_cast<int>(i % 1000) * (self.rank + 1);
      int* target = inPlace ? input.data() : output.data();
      must(ncclAllReduce(input.data(), target, count, ncclInt32, ncclSum, self.comm, nullptr),
           "ncclAllReduce", parent, self.comm);
      must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
      const int factor = self.ranks * (self.ranks + 1) / 2;
      for (size_t i = 0; i < count; ++i)
        if (target[i] != static_cast<int>(i % 1000) * factor) return 2;
    }
  return 0;
}

/// Sums, on that many ranks; the log.
std::string logOfSums(int ranks, Path path) {
  const Log log;
  RankProcesses processes(ranks, path, [](Rank& self, const ChildSide& parent) {
    const int wrong = checkSums(self, parent);
    must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
    return wrong;
  });
  processes.expectSuccess(60s);
  return log.text();
}

/// What the ranks of a job that cannot be made say, one after the other.
std::vector<std::string> refusalsOf(int ranks, const std::function<void(int)>& prepare = {}) {
  RankProcesses processes(
      ranks, Path::sharedMemory, [](Rank&, const ChildSide&) { return 0; }, prepare);
  std::vector<std::string> said;
  for (int rank = 0; rank < ranks; ++rank)
    said.push_back(processes[rank].expectLine("failed ncclCommInitRank", in(20s)));
  return said;
}

TEST(AlgorithmFiles, OfFourRanksRunAndTheLogNamesThem) {
  const Settings settings{{"TUTTI_ALGO_FILES", kExamples}, {"NCCL_ALGO", "allreduce:my-pairs"}};
  EXPECT_THAT(
      logOfSums(4, Path::sharedMemory),
      AllOf(HasSubstr("pairs_allreduce_4.xml: proved: my-pairs AllReduce on 4 ranks"),
            HasSubstr("hosts_allreduce_8.xml: my-hosts is for 8 ranks, not 4: skipped"),
            HasSubstr("AllReduce: 4004 bytes: algorithm my-pairs"), Not(HasSubstr("algorithm ring"))));
}

TEST(AlgorithmFiles, OfEightRanksRunBetweenHosts) {
  const Settings settings{{"TUTTI_ALGO_FILES", kExamples + "/hosts_allreduce_8.xml"},
                          {"NCCL_ALGO", "MY-HOSTS"}};
  EXPECT_THAT(logOfSums(8, Path::hosts), HasSubstr("AllReduce: 4004 bytes: algorithm my-hosts"));
}

TEST(AlgorithmFiles, RunForCallsOfTheirSizesWithoutBeingNamed) {
  const Files files;
  const Settings settings{
      {"TUTTI_ALGO_FILES", files.copy("halving_allreduce_4.json", "a.json", "\"ranks\": 4,",
                                      "\"ranks\": 4, \"minBytes\": 2000, \"maxBytes\": 5000,")}};
  const std::string log = logOfSums(4, Path::sharedMemory);
  EXPECT_THAT(log, AllOf(HasSubstr("AllReduce: 4004 bytes: algorithm my-halving"),
                         Not(HasSubstr("AllReduce: 4 bytes: algorithm my-halving")),
                         Not(HasSubstr("AllReduce: 800012 bytes: algorithm my-halving"))));
}

TEST(AlgorithmFiles, InWhichOneStepIsWrongFailTheInitOfAllRanks) {
  const Files files;
  const std::string wrong =
      files.copy("pairs_allreduce_4.xml", "wrong.xml", "type=\"re\" srcbuf=\"s\" srcoff=\"2\"",
                 "type=\"re\" srcbuf=\"s\" srcoff=\"1\"");
  const Settings settings{{"TUTTI_ALGO_FILES", wrong}};
  for (const std::string& said : refusalsOf(4))
    EXPECT_THAT(said, AllOf(HasSubstr("TUTTI_ALGO_FILES: " + wrong + ": not a right AllReduce"),
                            HasSubstr("rank 0"), HasSubstr("lane 3")));
}

TEST(AlgorithmFiles, ThatCannotBeReadOrDifferFailTheInitOfAllRanks) {
  const Files files;
  const std::string ring = files.copy("ring_allreduce.json", "a.json");
  const std::string other = files.copy("ring_allreduce.json", "b.json", "my-ring", "my-other");
  for (const auto& said :
       refusalsOf(3, [&](int rank) { ::setenv("TUTTI_ALGO_FILES", (rank == 2 ? other : ring).c_str(), 1); }))
    EXPECT_THAT(said, AllOf(HasSubstr("TUTTI_ALGO_FILES differs between ranks"), HasSubstr("rank 0"),
                            HasSubstr("rank 2")));
  for (const auto& said : refusalsOf(2, [&](int rank) {
         if (rank == 1) ::setenv("TUTTI_ALGO_FILES", "/nonexistent/x.json", 1);
       }))
    EXPECT_THAT(said, AllOf(HasSubstr("/nonexistent/x.json: No such file"), HasSubstr("not set")));
  const Settings settings{{"TUTTI_ALGO_FILES", "/nonexistent/x.json"}};
  for (const auto& said : refusalsOf(2))
    EXPECT_THAT(said, HasSubstr("TUTTI_ALGO_FILES: algorithm file or folder /nonexistent/x.json"));
}

// Blocks go out while others come in: right out of place only.
constexpr const char* kAllToAll = R"({"name": "mine", "collective": "alltoall", "ranks": 3,
  "programs": [{"ranks": "all", "lanes": [[
    {"do": "copy", "src": "input[rank]", "dst": "output[rank]"},
    {"repeat": "ranks-1", "steps": [
      {"do": "send", "src": "input[rank+1+i]", "to": "rank+1+i"},
      {"do": "recv", "from": "rank-1-i", "dst": "output[rank-1-i]"}]}]]}]})";

TEST(AlgorithmFiles, AreNeverUsedForAKindOfCallThatIsNotProved) {
  const Files files;
  const std::string path = files.write("mine.json", kAllToAll);
  const auto job = [&](bool named) {
    const Log log;
    RankProcesses processes(3, Path::sharedMemory, [&](Rank& self, const ChildSide& parent) {
      constexpr size_t kCount = 501;
      std::vector<int> input(3 * kCount), output(3 * kCount);
      for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<int>(i / kCount) + 10 * self.rank;
      const ncclResult_t inPlace =
          ncclAlltoAll(input.data(), input.data(), kCount, ncclInt32, self.comm, nullptr);
      parent.say(std::string("in place ") + (inPlace == ncclSuccess ? "ran" : ncclGetLastError(self.comm)));
      must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
      for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<int>(i / kCount) + 10 * self.rank;
      must(ncclAlltoAll(input.data(), output.data(), kCount, ncclInt32, self.comm, nullptr), "ncclAlltoAll",
           parent);
      must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
      must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
      for (size_t i = 0; i < output.size(); ++i)
        if (output[i] != self.rank + 10 * static_cast<int>(i / kCount)) return 2;
      return 0;
    });
    for (int rank = 0; rank < 3; ++rank) {
      const std::string said = processes[rank].expectLine("in place ", in(20s));
      if (named) {
        EXPECT_THAT(said, HasSubstr("algorithm mine (" + path + ") is proved for calls out of place only"));
        EXPECT_THAT(said, HasSubstr("rank " + std::to_string(rank) + " is in place"));
      } else {
        EXPECT_THAT(said, HasSubstr("ran"));
      }
    }
    processes.expectSuccess(30s);
    EXPECT_THAT(log.text(),
                HasSubstr("proved for calls out of place only, so used only where NCCL_ALGO names it"));
    return log.text();
  };
  const Settings settings{{"TUTTI_ALGO_FILES", path}};
  EXPECT_THAT(job(false), Not(HasSubstr("algorithm mine,")));
  const Settings names{{"NCCL_ALGO", "alltoall:mine"}};
  EXPECT_THAT(job(true), HasSubstr("algorithm mine,"));
}

/// Everyone stores its block at all others.
constexpr const char* kPut =
    R"({"name": "put", "collective": "allgather", "ranks": 3, "sharedUserBuffers": true,
  "programs": [{"ranks": "all", "teams": ["all"], "lanes": [[
    {"do": "signal", "team": 0},
    {"do": "wait", "team": 0},
    {"do": "copy", "src": "input[rank]", "dst": "output[rank]", "dstTeam": 0},
    {"do": "signal", "team": 0, "flag": 1},
    {"do": "wait", "team": 0, "flag": 1}]]}]})";

TEST(AlgorithmFiles, UseOthersBuffersOnlyWhereBlocksLieAlikeOnAllRanks) {
  const Files files;
  const Settings settings{{"TUTTI_ALGO_FILES", files.write("put.json", kPut)},
                          {"NCCL_ALGO", "allgather:put,ring"}};
  for (const bool gaps : {false, true}) {
    const Log log;
    RankProcesses processes(3, Path::sharedMemory, [gaps](Rank& self, const ChildSide& parent) {
      const std::vector<size_t> counts = {700, 1, 333};
      std::vector<size_t> places = {0, 700, 701};
      if (gaps)
        for (size_t block = 0; block < 3; ++block)
          places[block] += (block + 1) * static_cast<size_t>(self.rank);
      constexpr size_t kRoom = 2000;
      int* input = nullptr;
      int* output = nullptr;
      must(ncclMemAlloc(reinterpret_cast<void**>(&input), kRoom * sizeof(int)), "ncclMemAlloc", parent);
      must(ncclMemAlloc(reinterpret_cast<void**>(&output), kRoom * sizeof(int)), "ncclMemAlloc", parent);
      const size_t mine = counts[static_cast<size_t>(self.rank)];
      for (size_t i = 0; i < mine; ++i) input[i] = 1000 * self.rank + static_cast<int>(i);
      std::fill_n(output, kRoom, -1);
      std::vector<int> expected(output, output + kRoom);
      for (size_t block = 0; block < 3; ++block)
        for (size_t i = 0; i < counts[block]; ++i)
          expected[places[block] + i] = 1000 * static_cast<int>(block) + static_cast<int>(i);
      must(tuttiAllGatherv(input, output, mine, counts.data(), places.data(), ncclInt32, self.comm, nullptr),
           "tuttiAllGatherv", parent);
      must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
      must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
      const bool right = std::equal(expected.begin(), expected.end(), output);
      must(ncclMemFree(input), "ncclMemFree", parent);
      must(ncclMemFree(output), "ncclMemFree", parent);
      return right ? 0 : 2;
    });
    processes.expectSuccess(30s);
    EXPECT_EQ(log.text().find("algorithm ring,") != std::string::npos, gaps) << log.text();
  }
}

}  // namespace
}  // namespace tutti::system_test
