#include "base/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/base_test.h"
#include "base/unique_fd.h"

namespace tutti::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class OutputFile : public ::testing::Test {
 protected:
  OutputFile() : folder_(::testing::TempDir() + "tutti_output_XXXXXX") {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  ~OutputFile() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  size_t files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {})); }
  static std::string contentOf(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  std::string folder_;
};

TEST_F(OutputFile, IsReplacedAsAWhole) {
  ASSERT_TRUE(replaceFile(path("a"), "first, and long").isOk());
  const UniqueFd reader(::open(path("a").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(replaceFile(path("a"), "second").isOk());
  EXPECT_EQ(contentOf(path("a")), "second");
  std::string old(15, ' ');
  EXPECT_EQ(::read(reader.get(), old.data(), old.size()), 15);
  EXPECT_EQ(old, "first, and long") << "who had it open reads on in the old content";
  EXPECT_EQ(files(), 1u) << "the temporary file is gone";
}

TEST_F(OutputFile, OfALinkIsWhatTheLinkLeadsTo) {
  std::ofstream(path("real")) << "old";
  fs::create_symlink(path("real"), path("link"));
  ASSERT_TRUE(replaceFile(path("link"), "new").isOk());
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(contentOf(path("real")), "new");
}

TEST_F(OutputFile, ThatCannotBeWrittenSaysWhyAndLeavesNothing) {
  EXPECT_THAT(replaceFile(path("none/a"), "x").message(), HasSubstr("No such file or directory"));
  fs::create_directory(path("folder"));
  EXPECT_THAT(replaceFile(path("folder"), "x").message(), HasSubstr("Is a directory"));
  EXPECT_EQ(files(), 1u);
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(writeWithoutSignal(full.get(), "x"), ENOSPC);
}

TEST_F(OutputFile, ThatIsAPipeIsWrittenToAndNeverRaisesASignalOrWaits) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(replaceFile(path("pipe"), "x").message(), HasSubstr("No such device or address"))
      << "nobody reads";
  const UniqueFd reader(::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(replaceFile(path("pipe"), "text").isOk());
  std::string got(4, ' ');
  EXPECT_EQ(::read(reader.get(), got.data(), got.size()), 4);
  EXPECT_EQ(got, "text");
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ::close(ends[0]);
  ASSERT_NE(::signal(SIGPIPE, SIG_DFL), SIG_ERR);
  EXPECT_EQ(writeWithoutSignal(ends[1], "x"), EPIPE) << "the reader has gone; SIGPIPE would end this process";
  sigset_t pending;
  ::sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
  ::close(ends[1]);
}

}  // namespace
}  // namespace tutti::testing
