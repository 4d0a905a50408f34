// Loads the library as plugins and interpreters do, by dlopen, and does what must be safe. Not linked with
// it.
//
//   loading_program copies LIBRARY COPY    two copies in one process, each with two ranks
//   loading_program namespaces LIBRARY     one by dlopen, one in a linker namespace of its own (dlmopen)
//   loading_program close LIBRARY          opened, used and closed, ten times over
//   loading_program close-alive LIBRARY    closed while communicators are alive and its threads run
//   loading_program fork-busy LIBRARY      a child of a process with work under way: its parent's
//   communicator is refused, its own works loading_program fork LIBRARY           a child exits while its
//   parent goes on; a child makes its own communicator
#include <dlfcn.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/forked_leaks.h"

namespace {

[[noreturn]] void fail(const std::string& what) {
  std::printf("%s\n", what.c_str());
  std::fflush(stdout);
  std::_Exit(1);
}

/// The functions of one loaded copy.
struct Library {
  void* handle = nullptr;
  decltype(&ncclGetUniqueId) getUniqueId = nullptr;
  decltype(&ncclCommInitRank) commInitRank = nullptr;
  decltype(&ncclCommDestroy) commDestroy = nullptr;
  decltype(&ncclCommAbort) commAbort = nullptr;
  decltype(&ncclCommCount) commCount = nullptr;
  decltype(&ncclAllReduce) allReduce = nullptr;
  decltype(&ncclGetLastError) getLastError = nullptr;
  ncclResult_t (*streamSynchronize)(cudaStream_t) = nullptr;

  void find(void* opened) {
    if (opened == nullptr) fail(std::string("dlopen: ") + ::dlerror());
    handle = opened;
    get(getUniqueId, "ncclGetUniqueId");
    get(commInitRank, "ncclCommInitRank");
    get(commDestroy, "ncclCommDestroy");
    get(commAbort, "ncclCommAbort");
    get(commCount, "ncclCommCount");
    get(allReduce, "ncclAllReduce");
    get(getLastError, "ncclGetLastError");
    get(streamSynchronize, "tuttiStreamSynchronize");
  }
  template <typename Function>
  void get(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(handle, name));
    if (function == nullptr) fail(std::string("no symbol ") + name);
  }
  void must(ncclResult_t result, const char* what) const {
    if (result != ncclSuccess) fail(std::string(what) + ": " + getLastError(nullptr));
  }
};

Library open(const char* path) {
  Library library;
  library.find(::dlopen(path, RTLD_NOW | RTLD_LOCAL));
  return library;
}

struct Pair {
  ncclComm_t comms[2] = {};
};

/// Two ranks in two threads. (Each thread waits for its own null stream's work: both are the default
/// device's.)
Pair makePair(const Library& library) {
  Pair pair;
  ncclUniqueId id;
  library.must(library.getUniqueId(&id), "ncclGetUniqueId");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      library.must(library.commInitRank(&pair.comms[rank], 2, id, rank), "ncclCommInitRank");
    });
  for (std::thread& thread : threads) thread.join();
  return pair;
}

ncclComm_t makeSingle(const Library& library) {
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  library.must(library.getUniqueId(&id), "ncclGetUniqueId");
  library.must(library.commInitRank(&comm, 1, id, 0), "ncclCommInitRank");
  return comm;
}

void destroy(const Library& library, const Pair& pair) {
  std::vector<std::thread> threads;
  for (ncclComm_t comm : pair.comms)
    threads.emplace_back([&, comm] { library.must(library.commDestroy(comm), "ncclCommDestroy"); });
  for (std::thread& thread : threads) thread.join();
}

void reduceAlone(const Library& library, ncclComm_t comm) {
  float in[100], out[100] = {};
  for (int i = 0; i < 100; ++i) in[i] = static_cast<float>(i);
  library.must(library.allReduce(in, out, 100, ncclFloat32, ncclSum, comm, nullptr), "ncclAllReduce");
  library.must(library.streamSynchronize(nullptr), "tuttiStreamSynchronize");
  if (std::memcmp(in, out, sizeof in) != 0) fail("wrong result");
}

/// Both copies at once: their threads, listeners and last errors are their own.
void useBoth(const Library& first, const Library& second) {
  if (first.allReduce == second.allReduce) fail("the same code twice");
  const Pair one = makePair(first), two = makePair(second);
  const ncclComm_t alone = makeSingle(first), other = makeSingle(second);
  std::thread busy([&] {
    for (int i = 0; i < 50; ++i) reduceAlone(first, alone);
  });
  for (int i = 0; i < 50; ++i) reduceAlone(second, other);
  busy.join();

  // A communicator of the other copy, and a bad argument: only the copy that was called knows of it.
  int count = 0;
  if (first.commCount(nullptr, &count) == ncclSuccess) fail("a null communicator was taken");
  if (std::strlen(first.getLastError(nullptr)) == 0) fail("no error text");
  if (std::strlen(second.getLastError(nullptr)) != 0) fail("the other copy's error is seen");
  destroy(first, one);
  first.must(first.commDestroy(alone), "ncclCommDestroy");
  reduceAlone(second, other);  // lives on
  destroy(second, two);
  second.must(second.commDestroy(other), "ncclCommDestroy");
}

void closeAndOpen(const char* path) {
  for (int round = 0; round < 10; ++round) {
    const Library library = open(path);
    const ncclComm_t alone = makeSingle(library);
    reduceAlone(library, alone);
    destroy(library, makePair(library));
    library.must(library.commDestroy(alone), "ncclCommDestroy");
    if (::dlclose(library.handle) != 0) fail("dlclose");
  }
}

void closeAlive(const char* path) {
  const Library library = open(path);
  const Pair pair = makePair(library);
  reduceAlone(library, makeSingle(library));
  if (::dlclose(library.handle) != 0) fail("dlclose");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // its threads go on
  destroy(library, pair);                                       // and so does its code
}

/// Waits for the child, which must exit with this.
void expectStatus(pid_t child, int expected, const std::string& who) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) fail("waitpid");
  const int got = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (got != expected) fail(who + ": status " + std::to_string(got));
}

void forkAndGoOn(const char* path) {
  const Library library = open(path);
  const Pair pair = makePair(library);
  const ncclComm_t alone = makeSingle(library);
  reduceAlone(library, alone);
  std::fflush(stdout);
  // A child that only exits: its exit handlers and destructors must not hang on threads that it does not
  // have.
  pid_t child = ::fork();
  if (child == 0) std::exit(7);
  expectStatus(child, 7, "exiting child");
  reduceAlone(library, alone);
  // A child that starts anew.
  child = ::fork();
  if (child == 0) {
    const ncclComm_t own = makeSingle(library);
    reduceAlone(library, own);
    library.must(library.commDestroy(own), "ncclCommDestroy in the child");
    std::exit(8);
  }
  expectStatus(child, 8, "child with its own");
  reduceAlone(library, alone);
  destroy(library, pair);
  library.must(library.commDestroy(alone), "ncclCommDestroy");
}

void forkWhileBusy(const char* path) {
  const Library library = open(path);
  const Pair pair = makePair(library);
  float data[100] = {};
  // Rank 1 does not call: this goes on.
  library.must(library.allReduce(data, data, 100, ncclFloat32, ncclSum, pair.comms[0], nullptr),
               "ncclAllReduce");
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    for (const ncclComm_t parents : pair.comms) {
      if (library.allReduce(data, data, 100, ncclFloat32, ncclSum, parents, nullptr) != ncclInvalidUsage ||
          std::strstr(library.getLastError(nullptr), "the process that forked this one") == nullptr)
        fail("the parent's communicator was taken");
      if (library.commDestroy(parents) != ncclInvalidUsage) fail("the parent's communicator was destroyed");
    }
    const ncclComm_t own = makeSingle(library);
    reduceAlone(library, own);
    library.must(library.commDestroy(own), "ncclCommDestroy in the child");
    std::exit(9);
  }
  expectStatus(child, 9, "child of a busy process");
  for (const ncclComm_t comm : pair.comms) library.must(library.commAbort(comm), "ncclCommAbort");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[1] : "";
  if (mode == "copies" && argc == 4) {
    useBoth(open(argv[2]), open(argv[3]));
  } else if (mode == "namespaces") {
    Library other;
    other.find(::dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW | RTLD_LOCAL));
    useBoth(open(argv[2]), other);
  } else if (mode == "close") {
    closeAndOpen(argv[2]);
  } else if (mode == "close-alive") {
    closeAlive(argv[2]);
  } else if (mode == "fork-busy") {
    forkWhileBusy(argv[2]);
  } else if (mode == "fork") {
    forkAndGoOn(argv[2]);
  } else {
    fail("usage: see the top of the source");
  }
  std::puts("all right");
  return 0;
}
