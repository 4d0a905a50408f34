// The library's symbols, and programs that were built without our help.
#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "support/command.h"

namespace {

using testing::HasSubstr;
using tutti::test::Outcome;
using tutti::test::runCommand;

/// Exported NCCL symbols with nm's letter: W weak, T strong.
std::map<std::string, char> symbolsOf(const std::string& library) {
  std::map<std::string, char> symbols;
  std::istringstream lines(runCommand("nm -D --defined-only " + library).output);
  std::string address, letter, name;
  while (lines >> address >> letter >> name)
    if (name.starts_with("nccl") || name.starts_with("pnccl")) symbols[name] = letter[0];
  return symbols;
}

// The 52 functions of 2.28.9, and those that 2.29 added.
constexpr const char* kUpTo228 =
    "GetVersion GetUniqueId CommInitRank CommInitAll CommDestroy CommCount CommCuDevice CommUserRank "
    "GetErrorString Reduce Bcast Broadcast AllReduce ReduceScatter AllGather GroupStart GroupEnd "
    "CommGetAsyncError CommAbort Send Recv RedOpCreatePreMulSum RedOpDestroy GetLastError CommInitRankConfig "
    "CommFinalize CommSplit CommRegister CommDeregister MemAlloc MemFree GroupSimulateEnd "
    "CommInitRankScalable "
    "ResetDebugInit CommShrink CommWindowRegister CommWindowDeregister AlltoAll Gather Scatter DevCommCreate "
    "DevCommDestroy TeamWorld TeamLsa TeamRail TeamRankToWorld TeamRankToLsa LsaBarrierCreateRequirement "
    "LLA2ACalcSlots LLA2ACreateRequirement GinBarrierCreateRequirement CommRevoke";
constexpr const char* kSince229 =
    "CommGetUniqueId CommGrow CommQueryProperties PutSignal Signal WaitSignal WinGetUserPtr CommSuspend "
    "CommResume "
    "CommMemStats GetLsaMultimemDevicePointer GetMultimemDevicePointer GetLsaDevicePointer "
    "GetPeerDevicePointer";

TEST(AbiSymbols, EveryFunctionIsWeakAndHasAStrongTwin) {
  const auto symbols = symbolsOf(ABI_LIBRARY);
  size_t functions = 0;
  for (const char* list : {kUpTo228, kSince229}) {
    std::istringstream names(list);
    for (std::string name; names >> name; ++functions) {
      ASSERT_EQ(symbols.count("nccl" + name), 1u) << name;
      ASSERT_EQ(symbols.count("pnccl" + name), 1u) << name;
      EXPECT_EQ(symbols.at("nccl" + name), 'W') << name;
      EXPECT_EQ(symbols.at("pnccl" + name), 'T') << name;
    }
  }
  EXPECT_EQ(functions, 52u + 14u);
  EXPECT_EQ(symbols.at("ncclResetDebugInitInternal"), 'T');
  EXPECT_EQ(symbols.size(), 2 * functions + 1) << "a symbol that is in neither list";
}

TEST(AbiSymbols, HaveNoVersions) {
  const Outcome outcome = runCommand("readelf --version-info " ABI_LIBRARY);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.output, testing::Not(HasSubstr("Version definition section"))) << outcome.output;
}

TEST(AbiSymbols, TheLibraryStaysLoaded) {
  EXPECT_THAT(runCommand("readelf -d " ABI_LIBRARY).output, HasSubstr("NODELETE"));
}

#ifdef ABI_TOOLKIT_LIBRARY
TEST(AbiSymbols, AreThoseOfTheToolkitsLibrary) {
  const auto toolkit = symbolsOf(ABI_TOOLKIT_LIBRARY), own = symbolsOf(ABI_LIBRARY);
  EXPECT_GE(toolkit.size(), 105u);
  for (const auto& [name, letter] : toolkit) {
    ASSERT_EQ(own.count(name), 1u) << name;
    EXPECT_EQ(own.at(name), letter) << name;
  }
}
#endif

TEST(AbiPrograms, PlainC99RunsWithoutCuda) {
  const Outcome outcome = runCommand("timeout 30 " ABI_BIN "/abi_plain_c");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("plain C: all right"));
}

#ifdef ABI_HAVE_TOOLKIT
TEST(AbiPrograms, CompiledAgainstNvidiasHeaderRunsOnOurLibrary) {
  const Outcome outcome = runCommand("timeout 30 " ABI_BIN "/abi_nvidia_program");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("all right"));
  EXPECT_THAT(outcome.output,
              HasSubstr("ncclDevCommCreate makes a communicator for CUDA kernels, which needs a GPU"));
}
#endif

/// Compiles `text` in both languages, with and without CUDA headers of either kind, warnings as errors.
void compileEverywhere(const std::string& text) {
  const std::string own = TUTTI_SOURCE_DIR "/include";
  std::vector<std::string> cuda = {"-I " + own + "/hostrt"};
#ifdef ABI_TOOLKIT_INCLUDE
  cuda.push_back("-isystem " ABI_TOOLKIT_INCLUDE);
#endif
  const std::string file = testing::TempDir() + "/abi_include_" + std::to_string(::getpid());
  std::ofstream(file) << text;
  const std::string flags = " -Wall -Wextra -Wshadow -pedantic -Werror -fsyntax-only -I " + own + " ";
  for (const std::string& headers : cuda)
    for (const char* language : {"gcc -std=c99 -x c", "g++ -std=c++11 -x c++"}) {
      const Outcome outcome = runCommand(std::string(language).insert(3, flags + headers) + " " + file);
      EXPECT_EQ(outcome.status, 0) << language << " " << headers << "\n"
                                   << text << outcome.output.substr(0, 2000);
    }
  ::unlink(file.c_str());
}

TEST(AbiHeaders, CanBeIncludedInAnyOrder) {
  const std::string use =
      "ncclConfig_t config = NCCL_CONFIG_INITIALIZER;\nncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;\n"
      "cudaStream_t stream;\n";
  compileEverywhere("#include <cuda_runtime.h>\n#include <nccl.h>\n" + use);
  compileEverywhere(
      "#include <nccl_device.h>\n#include <cuda_runtime.h>\n#include <tutti/tutti.h>\n#include <nccl.h>\n" +
      use);
}

TEST(AbiHeaders, ServeWithoutAnyCudaHeader) {
  // Only the compiler's own folders and the C library's: whatever lies in /usr/local/include is not seen.
  const std::string own = TUTTI_SOURCE_DIR "/include";
  const std::string bare =
      "gcc -fsyntax-only -pedantic -Wall -Wextra -Werror -nostdinc -isystem $(gcc -print-file-name=include) "
      "-isystem /usr/include/$(gcc -print-multiarch) -isystem /usr/include -I " +
      own;
  const std::string file = testing::TempDir() + "/abi_bare_" + std::to_string(::getpid()) + ".c";
  for (const char* first : {"", "typedef struct CUstream_st* cudaStream_t;\n"}) {
    std::ofstream(file)
        << "#ifdef __has_include\n#if __has_include(<cuda_runtime_api.h>)\n#error CUDA\n#endif\n#endif\n"
        << first << "#include <nccl.h>\n#include <nccl_device.h>\ncudaStream_t stream;\n";
    // A second typedef of the same type is C11; programs that have their own are not C99.
    const Outcome outcome = runCommand(bare + (*first == '\0' ? " -std=c99 " : " -std=c11 ") + file);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
  }
  ::unlink(file.c_str());
}

TEST(AbiHeaders, GiveCudaTypesAsNvidiasDo) {
#ifdef ABI_TOOLKIT_INCLUDE
  const std::string file = testing::TempDir() + "/abi_types_" + std::to_string(::getpid()) + ".cc";
  std::ofstream(file) << "#include <nccl.h>\n__half a; __nv_bfloat16 b; __nv_fp8_e4m3 c;\n";
  const Outcome outcome = runCommand("g++ -std=c++17 -fsyntax-only -I " TUTTI_SOURCE_DIR
                                     "/include -isystem " ABI_TOOLKIT_INCLUDE " " +
                                     file);
  EXPECT_EQ(outcome.status, 0) << outcome.output.substr(0, 2000);
  ::unlink(file.c_str());
#else
  GTEST_SKIP() << "no toolkit was found when this was configured";
#endif
}

}  // namespace
