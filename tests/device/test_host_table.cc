#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "base/params.h"
#include "device/host_table.h"

namespace tutti {
namespace {

/// In a child, since the answer is kept for the life of the process. Gives the error's text, empty on
/// success.
std::string lookUp(const std::string& path) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("TUTTI_HOST_RUNTIME", path.c_str(), 1);
    params().reload();
    auto table = hostTable();
    std::string text = table.status().message();
    if (table.isOk() && (*table)->version != 1) text = "wrong table";
    if (table.isOk() && *hostTable() != *table) text = "another table at the second call";
    (void)!::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return text;
}

const std::string kModules = TUTTI_BINARY_DIR "/lib/tests/";

TEST(HostTable, IsTakenFromTheLibraryThatTheEnvironmentNames) {
  EXPECT_EQ(lookUp(kModules + "libtest_host_table_1.so"), "");
}

TEST(HostTable, OfAnotherVersionIsRefused) {
  const std::string text = lookUp(kModules + "libtest_host_table_2.so");
  EXPECT_NE(text.find("version 2"), std::string::npos) << text;
  EXPECT_NE(text.find("libtest_host_table_2.so"), std::string::npos) << text;
}

TEST(HostTable, ThatIsMissingIsReportedWithItsPath) {
  const std::string text = lookUp("/nowhere/libtutti_hostrt.so.1");
  EXPECT_NE(text.find("/nowhere/libtutti_hostrt.so.1"), std::string::npos) << text;
}

TEST(HostTable, IsNotAnyLibrary) {
  const std::string text = lookUp("libm.so.6");
  EXPECT_NE(text.find("no symbol"), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti
