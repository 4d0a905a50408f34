// A communicator whose ranks are processes, and what each of them does with it.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "system/child.h"

namespace tutti::system_test {

/// Ends the process with a line to the parent when a call fails.
void must(ncclResult_t result, const char* what, const ChildSide& parent, ncclComm_t comm = nullptr);
void must(cudaError_t error, const char* what, const ChildSide& parent);

/// A unique id as text, and back: to pass it through a Child's lines.
std::string toHex(const ncclUniqueId& id);
ncclUniqueId fromHex(const std::string& text);

/// Which way the ranks' data takes.
enum class Path {
  sharedMemory,  // as found: all on one host
  sockets,       // each rank believes that it is on a host of its own (NCCL_HOSTID)
  hosts,         // every two ranks believe that they are on a host of their own
};
const char* nameOf(Path path);

/// Sets variables for the processes that are made while it lives.
class Settings {
 public:
  Settings(std::initializer_list<std::pair<const char*, std::string>> values) {
    for (const auto& [name, value] : values) {
      ::setenv(name, value.c_str(), 1);
      names_.push_back(name);
    }
  }
  ~Settings() {
    for (const char* name : names_) ::unsetenv(name);
  }
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;

 private:
  std::vector<const char*> names_;
};

/// An id as text, for a line to the parent.
std::string toHex(const ncclUniqueId& id);
ncclUniqueId fromHex(const std::string& text);

struct Rank {
  int rank = 0;
  int ranks = 1;
  ncclComm_t comm = nullptr;
};

/// Forks `ranks` processes, brings rank 0's id to the others, initialises a communicator and runs `body` in
/// each. `body` returns the exit status, and destroys the communicator.
class RankProcesses {
 public:
  using Body = std::function<int(Rank&, const ChildSide&)>;
  /// `prepare` runs in each process before it uses the library: for settings that only some ranks have.
  RankProcesses(int ranks, Path path, const Body& body, const std::function<void(int rank)>& prepare = {});

  Child& operator[](int rank) { return *children_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(children_.size()); }
  /// Waits for all; each must exit with 0.
  void expectSuccess(std::chrono::milliseconds time);

 private:
  std::vector<std::unique_ptr<Child>> children_;
};

}  // namespace tutti::system_test
