#include "common/processes.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <limits>

#include "common/size.h"

namespace tutti::perf {
namespace {

int numberOf(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text) return 0;
  return static_cast<int>(parseNumber(text, std::numeric_limits<int>::max()).value_or(0));
}

Outcome mpiResult(int error, const char* what) {
  if (error == 0) return Outcome::ok();
  return Outcome::failure(std::string(what) + ": MPI error " + std::to_string(error));
}

}  // namespace

LaunchInfo launchInfo() {
  LaunchInfo info;
  for (const char* size : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (!std::getenv(size)) continue;
    return {true, size, numberOf(size)};
  }
  for (const char* rank : {"PMIX_RANK", "PMI_RANK"})
    if (std::getenv(rank)) return {true, rank, 0};
  return info;
}

Outcome Processes::connect(std::unique_ptr<Processes>& processes) {
  processes.reset(new Processes());
  const LaunchInfo info = launchInfo();
  if (!info.launched) return Outcome::ok();
  const std::string context = "started by an MPI launcher (" + info.by + " is set)";

  // Found beside the program by its run path. Global: Open MPI's plugins look its symbols up.
  void* library = ::dlopen("libtutti_perf_mpi.so", RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    if (info.size == 1) return Outcome::ok();
    return Outcome::failure(context +
                            ", but MPI support cannot be loaded (built without MPI?): " + ::dlerror());
  }
  const auto get = reinterpret_cast<tuttiPerfMpiGet_t>(::dlsym(library, "tuttiPerfMpi_v1_get"));
  if (!get) return Outcome::failure(context + ", but libtutti_perf_mpi.so is of another version");
  const tuttiPerfMpi_v1* mpi = get();
  Processes& self = *processes;
  if (const Outcome outcome = mpiResult(mpi->init(&self.rank_, &self.size_), "MPI_Init"); !outcome.isOk())
    return outcome.within(context);
  self.mpi_ = mpi;
  if (info.size > 0 && info.size != self.size_)
    return Outcome::failure(context + " with " + std::to_string(info.size) + " processes, but MPI sees " +
                            std::to_string(self.size_) +
                            ": the launcher is of another MPI than libtutti_perf_mpi.so");
  return Outcome::ok();
}

Processes::~Processes() {
  if (mpi_) mpi_->finalize();
}

Outcome Processes::barrier() { return mpi_ ? mpiResult(mpi_->barrier(), "MPI_Barrier") : Outcome::ok(); }

Outcome Processes::broadcast(void* data, size_t bytes, int root) {
  return mpi_ ? mpiResult(mpi_->broadcast(data, bytes, root), "MPI_Bcast") : Outcome::ok();
}

Outcome Processes::allGather(const void* one, void* all, size_t bytes) {
  if (mpi_) return mpiResult(mpi_->allGather(one, all, bytes), "MPI_Allgather");
  std::memcpy(all, one, bytes);
  return Outcome::ok();
}

void Processes::abortOthers(int code) {
  if (mpi_ && size_ > 1) mpi_->abort(code);
}

}  // namespace tutti::perf
