// Files that tests read.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace tutti::test {

/// All bytes of a file, which must be there.
inline std::string contentOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// A file of a test, removed at its end.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content = "") {
    static int number = 0;
    path_ = testing::TempDir() + "/tutti-test-" + std::to_string(::getpid()) + "-" + std::to_string(number++);
    if (!content.empty()) std::ofstream(path_) << content;
  }
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tutti::test
