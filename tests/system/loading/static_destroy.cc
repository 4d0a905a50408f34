// A program that leaves its communicators to destructors of static objects, or to nobody.
//
//   static_destroy destructor    one made before main, one made in main after other statics; destroyed after
//   main static_destroy nobody        never destroyed static_destroy thread        exit() while another
//   thread is inside the library
#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

ncclComm_t makeOne() {
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  if (ncclGetUniqueId(&id) != ncclSuccess || ncclCommInitRank(&comm, 1, id, 0) != ncclSuccess) {
    std::printf("%s\n", ncclGetLastError(nullptr));
    std::_Exit(1);
  }
  return comm;
}

struct Owner {
  ncclComm_t comm = nullptr;
  ~Owner() {
    if (comm == nullptr) return;
    float data[4] = {1, 2, 3, 4};
    if (ncclAllReduce(data, data, 4, ncclFloat32, ncclSum, comm, nullptr) != ncclSuccess ||
        ncclCommDestroy(comm) != ncclSuccess) {
      std::printf("after main: %s\n", ncclGetLastError(nullptr));
      std::_Exit(1);
    }
    std::puts("destroyed after main");
  }
};

Owner early;

}  // namespace

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "";
  if (std::strcmp(mode, "destructor") == 0) {
    early.comm = makeOne();
    static Owner late;
    late.comm = makeOne();
  } else if (std::strcmp(mode, "nobody") == 0) {
    makeOne();
  } else if (std::strcmp(mode, "thread") == 0) {
    ncclUniqueId id;
    if (ncclGetUniqueId(&id) != ncclSuccess) return 1;
    std::thread([id] {
      ncclComm_t comm = nullptr;
      ncclCommInitRank(&comm, 2, id, 0);  // nobody else will come
    }).detach();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  } else {
    return 2;
  }
  std::puts("end of main");
  return 0;
}
