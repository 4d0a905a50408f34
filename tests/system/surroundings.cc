#include "system/surroundings.h"
#include "support/isolation.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace tutti::system_test {
namespace {

void mustWork(bool worked, const char* what) {
  if (worked) return;
  std::perror(what);
  _exit(98);
}

void ownMounts() {
  mustWork(::unshare(CLONE_NEWNS) == 0, "unshare");
  mustWork(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "make mounts private");
}

/// Memory of one of the two kinds, freed at the end.
class Buffer {
 public:
  Buffer(size_t count, bool ofRuntime, const ChildSide& parent) : ofRuntime_(ofRuntime) {
    if (ofRuntime) {
      must(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(int)), "cudaMalloc", parent);
    } else {
      data_ = static_cast<int*>(std::malloc(count * sizeof(int)));
    }
  }
  ~Buffer() {
    if (ofRuntime_) {
      cudaFree(data_);
    } else {
      std::free(data_);
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  int* get() const { return data_; }
  int& operator[](size_t i) const { return data_[i]; }

 private:
  int* data_ = nullptr;
  bool ofRuntime_;
};

void finish(const Rank& self, const ChildSide& parent) {
  must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
  ncclResult_t state = ncclSuccess;
  must(ncclCommGetAsyncError(self.comm, &state), "ncclCommGetAsyncError", parent);
  must(state, "collective", parent, self.comm);
}

int value(int rank, size_t i) { return rank * 1000 + static_cast<int>(i % 997); }

/// 0, or which of them was wrong.
int checkCount(const Rank& self, const ChildSide& parent, size_t count, bool ofRuntime) {
  const auto ranks = static_cast<size_t>(self.ranks);
  const Buffer in(count, ofRuntime, parent);
  const Buffer out(count * ranks, ofRuntime, parent);
  for (size_t i = 0; i < count; ++i) in[i] = value(self.rank, i);
  must(ncclAllReduce(in.get(), out.get(), count, ncclInt32, ncclSum, self.comm, nullptr), "ncclAllReduce",
       parent, self.comm);
  finish(self, parent);
  for (size_t i = 0; i < count; ++i) {
    int sum = 0;
    for (int rank = 0; rank < self.ranks; ++rank) sum += value(rank, i);
    if (out[i] != sum) return 11;
  }
  must(ncclAllGather(in.get(), out.get(), count, ncclInt32, self.comm, nullptr), "ncclAllGather", parent,
       self.comm);
  finish(self, parent);
  for (size_t i = 0; i < count * ranks; ++i)
    if (out[i] != value(static_cast<int>(i / count), i % count)) return 12;
  const int next = (self.rank + 1) % self.ranks;
  const int before = (self.rank + self.ranks - 1) % self.ranks;
  must(ncclGroupStart(), "ncclGroupStart", parent);
  must(ncclSend(in.get(), count, ncclInt32, next, self.comm, nullptr), "ncclSend", parent, self.comm);
  must(ncclRecv(out.get(), count, ncclInt32, before, self.comm, nullptr), "ncclRecv", parent, self.comm);
  must(ncclGroupEnd(), "ncclGroupEnd", parent, self.comm);
  finish(self, parent);
  for (size_t i = 0; i < count; ++i)
    if (out[i] != value(before, i)) return 13;
  return 0;
}

}  // namespace

bool mayMakeNamespaces() { return test::mayMakeNamespaces(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS); }

void ownDevShm(const char* size) {
  ownMounts();
  const std::string options = std::string("size=") + size;
  mustWork(::mount("tmpfs", "/dev/shm", "tmpfs", 0, options.c_str()) == 0, "mount /dev/shm");
}

void noDevShm() {
  ownMounts();
  mustWork(::mount("tmpfs", "/dev", "tmpfs", 0, "size=64k") == 0, "mount /dev");
}

void emptySys() {
  ownMounts();
  mustWork(::mount("tmpfs", "/sys", "tmpfs", 0, "size=64k") == 0, "mount /sys");
}

void enterMounts(pid_t process) {
  const int fd = ::open(("/proc/" + std::to_string(process) + "/ns/mnt").c_str(), O_RDONLY | O_CLOEXEC);
  // A sanitizer's own thread shares this process's folders, which no other mount namespace could have.
  mustWork(::unshare(CLONE_FS) == 0, "unshare");
  // Where this process lives in a folder that is its root (chroot), so does the other: entering leaves it.
  const int root = ::open(("/proc/" + std::to_string(process) + "/root").c_str(), O_PATH | O_CLOEXEC);
  mustWork(fd >= 0 && ::setns(fd, CLONE_NEWNS) == 0, "enter a mount namespace");
  mustWork(::fchdir(root) == 0 && ::chroot(".") == 0, "enter its root");
  ::close(root);
  ::close(fd);
}

void forbidUnixSockets() { mustWork(test::forbidUnixSockets(), "seccomp"); }

void enterPidNamespace() {
  mustWork(::unshare(CLONE_NEWPID) == 0, "unshare");
  const pid_t first = ::fork();
  mustWork(first >= 0, "fork");
  if (first == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return;
  }
  int status = 0;
  while (::waitpid(first, &status, 0) < 0 && errno == EINTR) continue;
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

int checkCollectives(const Rank& self, const ChildSide& parent, size_t largeCount) {
  for (const size_t count : {size_t{1}, size_t{1000}, largeCount})
    for (const bool ofRuntime : {true, false})
      if (const int wrong = checkCount(self, parent, count, ofRuntime); wrong != 0) return wrong;
  return 0;
}

int checkAndDestroy(const Rank& self, const ChildSide& parent, size_t largeCount) {
  if (const int wrong = checkCollectives(self, parent, largeCount); wrong != 0) return wrong;
  must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
  return 0;
}

}  // namespace tutti::system_test
