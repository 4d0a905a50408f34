// Helpers of the base layer's tests.
#pragma once

#include <dirent.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>

#include "base/deadline.h"
#include "base/params.h"

namespace tutti::testing {

using namespace std::chrono_literals;

/// Sets an environment variable for a test's life and reads the parameters again.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old, had_ = true;
    ::setenv(name, value.c_str(), 1);
    params().reload();
  }
  ~ScopedEnv() {
    had_ ? ::setenv(name_, old_.c_str(), 1) : ::unsetenv(name_);
    params().reload();
  }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

inline std::string temporaryPath(const char* what) {
  static int count = 0;
  return fmt::format("{}tutti_{}_{}_{}", ::testing::TempDir(), what, ::getpid(), count++);
}

inline std::string readFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

inline Deadline within(std::chrono::milliseconds limit) { return Deadline::after(limit); }

inline size_t entriesOf(const char* folder) {
  size_t count = 0;
  if (DIR* dir = ::opendir(folder)) {
    while (::readdir(dir) != nullptr) ++count;
    ::closedir(dir);
  }
  return count;
}

inline bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit = 3000ms) {
  for (const Deadline deadline = Deadline::after(limit); !deadline.passed(); std::this_thread::sleep_for(1ms))
    if (condition()) return true;
  return condition();
}

}  // namespace tutti::testing
