// What ranks write into their logs.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include "system/ranks.h"

namespace tutti::system_test {

/// The log of all ranks that are made while it lives.
class Log {
 public:
  Log()
      : folder_(makeFolder()),
        settings_{
            {"NCCL_DEBUG", "INFO"}, {"NCCL_DEBUG_SUBSYS", "ALL"}, {"NCCL_DEBUG_FILE", folder_ + "/%p"}} {}
  ~Log() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  std::string text() const {
    std::ostringstream all;
    for (const auto& file : std::filesystem::directory_iterator(folder_)) {
      all << std::ifstream(file.path()).rdbuf();
      all.clear();  // an empty file counts as a failure
    }
    return all.str();
  }

 private:
  static std::string makeFolder() {
    std::string path = testing::TempDir() + "/tutti-log-XXXXXX";
    return ::mkdtemp(path.data()) == nullptr ? std::string() : path;
  }
  std::string folder_;
  Settings settings_;
};

}  // namespace tutti::system_test
