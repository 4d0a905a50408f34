// The library in processes that load, copy, close or fork it.
#include <gmock/gmock.h>

#include <string>

#include "support/command.h"

namespace {

using testing::HasSubstr;
using tutti::test::Outcome;

Outcome run(const std::string& command) { return tutti::test::runCommand("timeout -k 5 40 " + command); }

const std::string kProgram = LOADING_BIN "/system_loading ";
const std::string kStatic = LOADING_BIN "/system_static_destroy ";
const std::string kLibrary = LOADING_LIBRARY;

void expectAllRight(const std::string& command) {
  const Outcome outcome = run(command);
  EXPECT_EQ(outcome.status, 0) << command << "\n" << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("all right"));
}

TEST(Loading, TwoCopiesInOneProcessDoNotDisturbEachOther) {
  // The copy lies in a folder of its own, with a host runtime beside it, as a second installation would.
  const std::string folder = testing::TempDir() + "/tutti_copy";
  ASSERT_EQ(run("sh -c 'rm -rf " + folder + " && mkdir -p " + folder + " && cp -L " + kLibrary + " " +
                folder + "/libnccl.so.2 && cp -rL " LOADING_HOST " " + folder + "/host'")
                .status,
            0);
  expectAllRight(kProgram + "copies " + kLibrary + " " + folder + "/libnccl.so.2");
  run("rm -rf " + folder);
}

TEST(Loading, ALinkerNamespaceOfItsOwnWorks) {
  if (*LOADING_SANITIZE != 0) GTEST_SKIP() << "sanitizers do not support dlmopen";
  expectAllRight(kProgram + "namespaces " + kLibrary);
}

TEST(Loading, CanBeClosedAndOpenedAgain) { expectAllRight(kProgram + "close " + kLibrary); }

TEST(Loading, CanBeClosedWhileItsThreadsRun) { expectAllRight(kProgram + "close-alive " + kLibrary); }

TEST(Loading, ForkedChildrenExitAndStartAnew) {
  if (std::string(LOADING_SANITIZE).find("thread") != std::string::npos)
    GTEST_SKIP() << "ThreadSanitizer does not support threads after fork";
  expectAllRight(kProgram + "fork " + kLibrary);
}

TEST(Loading, AForkedChildOfABusyProcessHasCommunicatorsOfItsOwnOnly) {
  if (std::string(LOADING_SANITIZE).find("thread") != std::string::npos)
    GTEST_SKIP() << "ThreadSanitizer does not support threads after fork";
  expectAllRight(kProgram + "fork-busy " + kLibrary);
}

TEST(Loading, StaticDestructorsMayUseCommunicators) {
  const Outcome outcome = run(kStatic + "destructor");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("end of main\ndestroyed after main\ndestroyed after main\n"));
}

TEST(Loading, ProgramsMayEndWithCommunicatorsAndCallsInProgress) {
  for (const char* mode : {"nobody", "thread"}) {
    const Outcome outcome = run(kStatic + mode);
    EXPECT_EQ(outcome.status, 0) << mode << "\n" << outcome.output;
    EXPECT_EQ(outcome.output, "end of main\n") << mode;
  }
}

}  // namespace
