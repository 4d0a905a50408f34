#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "common/runtime_paths.h"
#include "support/command.h"
#include "support/files.h"
#include "tutti_run/elf_needs.h"

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;
using tutti::test::Outcome;
using tutti::test::runCommand;

namespace {

const std::string kBin = TUTTI_BINARY_DIR "/bin";
const std::string kRun = kBin + "/tutti-run ";
const std::string kPrograms = TOOLS_PROGRAMS;

/// Programs that are not built with the sanitizer cannot load libraries that are.
bool isSanitized() { return *TOOLS_SANITIZE != 0; }

}  // namespace

#define NEEDS_NVCC() \
  if (isSanitized()) GTEST_SKIP() << "a program of nvcc cannot load sanitized libraries"

#ifdef TOOLS_HAVE_NVCC
TEST(TuttiRun, RunsAProgramOfNvccUnchanged) {
  NEEDS_NVCC();
  const Outcome outcome = runCommand(kRun + "--host " + kPrograms + "/cuda_program_shared");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("device 1: Tutti host device, 9.0\n"));
  EXPECT_THAT(outcome.output, EndsWith("sum 6291456, managed 2\n"));
}

TEST(TuttiRun, RunsAProgramWithPerThreadStreams) {
  NEEDS_NVCC();
  const Outcome outcome = runCommand(kRun + "--host " + kPrograms + "/cuda_program_per_thread");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, EndsWith("sum 6291456, managed 2\n"));
}

TEST(TuttiRun, AKernelLaunchFailsAndNamesTheKernel) {
  NEEDS_NVCC();
  const Outcome outcome = runCommand(kRun + "--host " + kPrograms + "/cuda_program_shared kernel");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output, HasSubstr("NCCL WARN launch of addOne(int*) refused"));
  EXPECT_THAT(outcome.output, HasSubstr("compile its source for virtual GPUs"));
  EXPECT_THAT(outcome.output, HasSubstr("cudaGetLastError(): cudaErrorNotSupported"));
}

TEST(TuttiRun, ProgramsWithGraphsRun) {
  NEEDS_NVCC();
  for (const char* kind : {"legacy", "per-thread"}) {
    const Outcome outcome = runCommand(kRun + "--host " + kPrograms + "/graph_program_" + kind);
    EXPECT_EQ(outcome.status, 0) << kind << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("sum 262144, nodes 4, calls 40, destroyed 1")) << kind;
  }
}

TEST(TuttiRun, AKernelInACaptureIsNamed) {
  NEEDS_NVCC();
  const Outcome outcome = runCommand(kRun + "--host " + kPrograms + "/graph_program_legacy kernel");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output, HasSubstr("launch of scale(float*) refused"));
  EXPECT_THAT(outcome.output, HasSubstr("cudaErrorNotSupported"));
}

TEST(TuttiRun, RefusesAStaticRuntimeAndSaysWhatToDo) {
  const std::string program = kPrograms + "/cuda_program_static";
  Outcome outcome = runCommand(kRun + "--host " + program);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output, HasSubstr("relink with -cudart shared"));
  const std::string stripped = testing::TempDir() + "/stripped";
  ASSERT_EQ(runCommand("strip -o " + stripped + " " + program).status, 0);
  outcome = runCommand(kRun + "--host " + stripped);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output, HasSubstr("relink with -cudart shared"));
}
#else
TEST(TuttiRun, RunsAProgramOfNvccUnchanged) { GTEST_SKIP() << "no nvcc was found when this was configured"; }
#endif

TEST(TuttiRun, RefusesAnotherMajorVersionAndSaysWhatToDo) {
  // A program that needs a library of that name: made by editing the name in one that needs libcudart.so.13.
  std::string bytes = tutti::test::contentOf(kBin + "/which_runtime");
  const size_t at = bytes.find("libcudart.so.13");
  ASSERT_NE(at, std::string::npos);
  bytes[at + 14] = '2';
  const std::string program = testing::TempDir() + "/needs_12";
  std::ofstream(program, std::ios::binary) << bytes;
  ::chmod(program.c_str(), 0755);
  const Outcome outcome = runCommand(kRun + "--host " + program);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output,
              HasSubstr("needs libcudart.so.12, but the runtime here is libcudart.so.13: relink"));
}

TEST(TuttiRun, ReadsAnyFileWithoutHarm) {
  const std::string bytes = tutti::test::contentOf(kBin + "/which_runtime");
  const std::string file = testing::TempDir() + "/damaged";
  for (size_t length = 0; length < bytes.size(); length += 1 + length / 7) {
    std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(length));
    (void)tutti::readElfNeeds(file);
  }
  unsigned seed = 1;
  for (int round = 0; round < 60; ++round) {
    std::string damaged = bytes.substr(0, 4096);
    for (int i = 0; i < 20; ++i) {
      seed = seed * 1103515245 + 12345;
      damaged[16 + seed / 65536 % 4000] = static_cast<char>(seed >> 8);
    }
    std::ofstream(file, std::ios::binary) << damaged;
    (void)tutti::readElfNeeds(file);
  }
  EXPECT_FALSE(tutti::readElfNeeds("/nonexistent"));
  EXPECT_FALSE(tutti::readElfNeeds("/tmp"));
  EXPECT_FALSE(tutti::readElfNeeds("/etc/passwd"));
  const auto needs = tutti::readElfNeeds(kBin + "/which_runtime");
  ASSERT_TRUE(needs);
  EXPECT_THAT(needs->libraries, testing::Contains("libcudart.so.13"));
  EXPECT_FALSE(needs->hasStaticCudart);
}

TEST(TuttiRun, PutsOurLibrariesInFrontAndKeepsTheRest) {
  const Outcome outcome = runCommand("LD_LIBRARY_PATH=/some/where " + kRun +
                                     "--host sh -c 'echo \"$LD_LIBRARY_PATH $TUTTI_RUNTIME $1\"' x 'a b'");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.output, StartsWith(TUTTI_BINARY_DIR "/lib/host:"));
  EXPECT_THAT(outcome.output, EndsWith(":/some/where host a b\n"));
}

TEST(TuttiRun, PassesTheExitStatusOn) { EXPECT_EQ(runCommand(kRun + "--host sh -c 'exit 7'").status, 7); }

TEST(TuttiRun, ExplainsWrongUse) {
  EXPECT_EQ(runCommand(kRun).status, 2);
  EXPECT_EQ(runCommand(kRun + "--host --cuda true").status, 2);
  const Outcome unknown = runCommand(kRun + "--hots true");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.output, HasSubstr("unknown option --hots"));
  const Outcome missing = runCommand(kRun + "--host no-such-program");
  EXPECT_EQ(missing.status, 127);
  EXPECT_THAT(missing.output, HasSubstr("cannot start no-such-program: No such file or directory"));
  EXPECT_THAT(runCommand(kRun + "--help").output, HasSubstr("usage: tutti-run"));
}

TEST(TuttiRun, WorksFromAnotherPrefix) {
  const std::string prefix = testing::TempDir() + "/prefix";
  const std::string copy = "rm -rf " + prefix + " && mkdir -p " + prefix + "/bin " + prefix +
                           "/lib && cp -a " + kBin + "/tutti-run " + prefix +
                           "/bin/ && cp -a " TUTTI_BINARY_DIR "/lib/host " + prefix + "/lib/";
  ASSERT_EQ(runCommand(copy).status, 0);
  const Outcome outcome = runCommand(prefix + "/bin/tutti-run --host sh -c 'echo $LD_LIBRARY_PATH'");
  EXPECT_THAT(outcome.output, HasSubstr("/prefix/lib/host"));
  ASSERT_EQ(runCommand("rm -r " + prefix + "/lib/host").status, 0);
  const Outcome without = runCommand(prefix + "/bin/tutti-run --host true");
  EXPECT_EQ(without.status, 1);
  EXPECT_THAT(without.output, HasSubstr("no libcudart.so.13 of the host runtime"));
}

// The machines of CI have no GPU; where there is one, the choice without TUTTI_RUNTIME is another.
TEST(SelectRuntime, TakesTheHostRuntimeWithoutADriver) {
  if (tutti::hasUsableDriver()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(runCommand(kBin + "/which_runtime 'a b' c").output, "host 8 a b c\n");
}

TEST(SelectRuntime, RestartsWhenTheWrongRuntimeIsLoaded) {
  const std::string cuda = tutti::findCudaRuntimeFolder();
  if (cuda.empty()) GTEST_SKIP() << "no CUDA toolkit on this machine";
  if (isSanitized()) GTEST_SKIP() << "NVIDIA's library is not sanitized";
  const std::string front = "LD_LIBRARY_PATH=" + cuda + " ";
  EXPECT_THAT(runCommand(front + "TUTTI_RUNTIME=host " + kBin + "/which_runtime 'a b' c").output,
              "host 8 a b c\n");
  EXPECT_THAT(runCommand(front + "TUTTI_RUNTIME=cuda " + kBin + "/which_runtime x").output,
              StartsWith("cuda "));
  // From the run path the host runtime is found, and left for NVIDIA's.
  EXPECT_THAT(runCommand("TUTTI_RUNTIME=cuda " + kBin + "/which_runtime x").output, StartsWith("cuda "));
  if (!tutti::hasUsableDriver()) {
    EXPECT_EQ(runCommand(front + kBin + "/which_runtime x").output, "host 8 x\n");
  }
}

TEST(SelectRuntime, DoesNotLoopWhenTheWantedRuntimeCannotWin) {
  const std::string cuda = tutti::findCudaRuntimeFolder();
  if (cuda.empty() || isSanitized())
    GTEST_SKIP() << "no CUDA toolkit on this machine, or sanitized libraries";
  const Outcome outcome = runCommand(
      "LD_PRELOAD=" + cuda + "/libcudart.so.13 TUTTI_RUNTIME=host timeout 10 " + kBin + "/which_runtime x");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output, HasSubstr("another one was loaded"));
}

TEST(SelectRuntime, RestartsProgramsThatTheLoaderWasToldToRun) {
  const std::string cuda = tutti::findCudaRuntimeFolder();
  const Outcome found =
      runCommand("readelf -l " + kBin + "/which_runtime | sed -n 's/.*interpreter: \\(.*\\)]/\\1/p'");
  const std::string loader = found.output.substr(0, found.output.find('\n'));
  if (cuda.empty() || isSanitized() || loader.empty())
    GTEST_SKIP() << "no CUDA toolkit on this machine, or sanitized libraries, or no loader";
  const std::string program = kBin + "/which_runtime 'a b' c";
  EXPECT_EQ(runCommand(loader + " " + program).output, "host 8 a b c\n");
  EXPECT_EQ(runCommand("TUTTI_RUNTIME=host " + loader + " --library-path " + cuda + " " + program).output,
            "host 8 a b c\n");
  EXPECT_EQ(runCommand("LD_LIBRARY_PATH=" + cuda + " TUTTI_RUNTIME=host " + loader + " " + program).output,
            "host 8 a b c\n");
  EXPECT_THAT(runCommand("TUTTI_RUNTIME=cuda " + loader + " " + program).output, StartsWith("cuda "));
}

TEST(SelectRuntime, RefusesAnUnknownName) {
  const Outcome outcome = runCommand("TUTTI_RUNTIME=gpu " + kBin + "/which_runtime");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output, HasSubstr("TUTTI_RUNTIME=gpu: expected host or cuda"));
}

TEST(RuntimePaths, ALoadersOptionsStayAndTheFolderComesFirst) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(tutti::withSearchPath({}, "/new"), Words{});
  EXPECT_EQ(tutti::withSearchPath({"/ld.so", "--inhibit-cache", "--library-path", "/a:/b"}, "/b"),
            (Words{"/ld.so", "--inhibit-cache", "--library-path", "/b:/a"}));
  EXPECT_EQ(tutti::withSearchPath({"/ld.so", "--inhibit-cache"}, "/new").at(1), "--library-path");
  EXPECT_THAT(tutti::withSearchPath({"/ld.so"}, "/new").at(2), StartsWith("/new"));
}

TEST(RuntimePaths, ThisProgramWasNotStartedByALoader) { EXPECT_TRUE(tutti::loaderCommand(1).empty()); }

TEST(RuntimePaths, PrependRemovesRepetitions) {
  EXPECT_EQ(tutti::prependToSearchPath("/a:/b", nullptr), "/a:/b");
  EXPECT_EQ(tutti::prependToSearchPath("/a:/b", ""), "/a:/b");
  EXPECT_EQ(tutti::prependToSearchPath("/a:/b", "/c:/a:/d"), "/a:/b:/c:/d");
}
