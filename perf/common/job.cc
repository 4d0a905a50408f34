#include "common/job.h"

#include <sys/resource.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

#include "common/size.h"

namespace tutti::perf {
namespace {

void copyText(const std::string& text, char* target, size_t capacity) {
  std::snprintf(target, capacity, "%s", text.c_str());
}

std::string hostName() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

size_t freeDeviceMemory() {
  size_t free = 0;
  size_t total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
}

std::string mebibytes(size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

size_t growth(size_t from, size_t to) { return to > from ? to - from : 0; }

}  // namespace

Job::Job(const Options& theOptions, const Collective& theCollective, Processes& theProcesses)
    : options(theOptions),
      collective(theCollective),
      processes(theProcesses),
      threadTimes(static_cast<size_t>(theOptions.threads)),
      threadWrong(static_cast<size_t>(theOptions.threads)),
      barrier_(theOptions.threads) {}

Job::~Job() { cleanUp(); }

bool Job::meet(int thread) {
  if (!barrier_.wait()) return false;
  if (processes.size() == 1) return true;
  if (thread == 0) {
    if (const Outcome outcome = processes.barrier(); !outcome.isOk()) fail(outcome.message());
  }
  return barrier_.wait();
}

void Job::fail(const std::string& message) {
  watchdog.fail(message);
  barrier_.breakUp();
}

Outcome Job::prepare() {
  if (const Outcome outcome = splitFromEnvironment(split_); !outcome.isOk()) return outcome;
  if (const Outcome outcome = assignRanks(); !outcome.isOk()) return outcome;
  if (const Outcome outcome = exchangeIds(); !outcome.isOk()) return outcome;
  if (const Outcome outcome = checkCuda(cudaSetDevice(ranks_[0].device), "cudaSetDevice"); !outcome.isOk())
    return outcome;
  freeBefore_ = freeDeviceMemory();
  residentBefore_ = residentBytes();
  if (!options.parallelInit)
    if (const Outcome outcome = initialise(ranks_.data(), static_cast<int>(ranks_.size())); !outcome.isOk())
      return outcome;
  freeAfterInit_ = freeDeviceMemory();
  residentAfterInit_ = residentBytes();
  return Outcome::ok();
}

Outcome Job::assignRanks() {
  int devices = 0;
  if (const Outcome outcome = checkCuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount"); !outcome.isOk())
    return outcome;
  if (devices < 1) return Outcome::failure("cudaGetDeviceCount: there is no device");

  // Processes of one host share its devices in rank order.
  struct Host {
    char name[256];
  };
  Host mine{};
  copyText(hostName(), mine.name, sizeof mine.name);
  std::vector<Host> hosts;
  if (const Outcome outcome = processes.gather(mine, hosts); !outcome.isOk()) return outcome;
  int before = 0;
  for (int process = 0; process < processes.rank(); ++process)
    before += std::strcmp(hosts[process].name, mine.name) == 0 ? 1 : 0;

  const int perProcess = options.threads * options.devicesPerThread;
  int first = before * perProcess;
  if (const char* text = std::getenv("NCCL_TESTS_DEVICE")) {
    const auto value = parseNumber(text, 65535);
    if (!value)
      return Outcome::misuse("NCCL_TESTS_DEVICE=" + std::string(text) + ": expected a device number");
    if (*value >= static_cast<uint64_t>(devices))
      return Outcome::misuse("NCCL_TESTS_DEVICE=" + std::string(text) + ": this machine has " +
                             std::to_string(devices) + " device(s), 0 to " + std::to_string(devices - 1));
    first += static_cast<int>(*value);
  }
  ranks_.resize(static_cast<size_t>(perProcess));
  for (int i = 0; i < perProcess; ++i) {
    ranks_[i].rank = processes.rank() * perProcess + i;
    // Ranks may share a device; a library that does not allow that says so itself.
    ranks_[i].device = (first + i) % devices;
    ranks_[i].group = split_.color(ranks_[i].rank);
  }
  return exchangeInfos();
}

Outcome Job::exchangeInfos() {
  std::vector<RankInfo> mine;
  for (const RankState& state : ranks_) {
    RankInfo info;
    info.rank = state.rank;
    info.group = state.group;
    info.pid = static_cast<int>(::getpid());
    info.device = state.device;
    cudaDeviceProp properties{};
    const std::string what = "cudaGetDeviceProperties of device " + std::to_string(state.device);
    if (const Outcome outcome = checkCuda(cudaGetDeviceProperties(&properties, state.device), what);
        !outcome.isOk())
      return outcome;
    std::snprintf(info.pci, sizeof info.pci, "%04x:%02x:%02x", static_cast<unsigned>(properties.pciDomainID),
                  static_cast<unsigned>(properties.pciBusID), static_cast<unsigned>(properties.pciDeviceID));
    copyText(hostName(), info.host, sizeof info.host);
    copyText(properties.name, info.deviceName, sizeof info.deviceName);
    mine.push_back(info);
  }
  if (const Outcome outcome = processes.gatherLists(mine, infos_); !outcome.isOk()) return outcome;
  for (RankState& state : ranks_) {
    state.groupSize = 0;
    for (const RankInfo& info : infos_) {
      if (info.group != state.group) continue;
      if (info.rank == state.rank) state.groupRank = state.groupSize;
      ++state.groupSize;
    }
    if (collective.hasRoot() && !options.allRoots && options.root >= state.groupSize)
      return Outcome::misuse("--root " + std::to_string(options.root) + ": there are only " +
                             std::to_string(state.groupSize) + " ranks");
  }
  return Outcome::ok();
}

Outcome Job::exchangeIds() {
  std::vector<ncclUniqueId> mine(ranks_.size());
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].groupRank != 0) continue;
    if (const Outcome outcome = checkNccl(ncclGetUniqueId(&mine[i]), "ncclGetUniqueId"); !outcome.isOk())
      return outcome;
  }
  std::vector<ncclUniqueId> all;
  if (const Outcome outcome = processes.gatherLists(mine, all); !outcome.isOk()) return outcome;
  for (RankState& state : ranks_) {
    const auto leader = std::find_if(infos_.begin(), infos_.end(),
                                     [&](const RankInfo& info) { return info.group == state.group; });
    state.id = all[static_cast<size_t>(leader - infos_.begin())];
  }
  return Outcome::ok();
}

Outcome Job::initialise(RankState* ranks, int count) {
  if (const Outcome outcome = checkNccl(ncclGroupStart(), "ncclGroupStart"); !outcome.isOk()) return outcome;
  Outcome first;
  for (int i = 0; i < count && first.isOk(); ++i) {
    RankState& state = ranks[i];
    const std::string what = "rank " + std::to_string(state.rank) + ": ncclCommInitRank";
    first = checkCuda(cudaSetDevice(state.device), "cudaSetDevice");
    if (first.isOk())
      first = checkNccl(ncclCommInitRank(&state.comm, state.groupSize, state.id, state.groupRank), what);
  }
  const ncclResult_t end = ncclGroupEnd();
  if (!first.isOk()) return first;
  first = checkNccl(end, "communicator initialisation (ncclGroupEnd)");
  return first.isOk() && options.pins() ? pin(ranks, count) : first;
}

Outcome Job::pin(RankState* ranks, int count) {
  const std::string function = collective.function();
  if (function.empty())
    return Outcome::misuse(
        "--algo, --proto and --channels: the calls are messages, for which there is no choice");
  const auto forFunction = [&](const std::string& text) {
    return text.empty() || text.find(':') != std::string::npos ? text : function + ":" + text;
  };
  const std::string algo = forFunction(options.algo);
  const std::string proto = forFunction(options.proto);
  for (int i = 0; i < count; ++i) {
    if (tuttiCommSetAlgo(ranks[i].comm, algo.c_str(), proto.c_str(), options.channels) == ncclSuccess)
      continue;
    return Outcome::misuse("--algo, --proto or --channels: " + std::string(ncclGetLastError(nullptr)));
  }
  tuttiPlan_t plan = TUTTI_PLAN_INITIALIZER;
  for (const int mapped : {1, 0})
    if (tuttiCommQueryPlan(ranks[0].comm, function.c_str(), 1, options.types[0]->nccl, mapped, &plan) ==
        ncclSuccess)
      return Outcome::ok();
  return Outcome::misuse("--algo or --proto: " + std::string(ncclGetLastError(nullptr)));
}

Job::BufferBytes Job::bufferBytes(const RankState& state) const {
  BufferBytes most;
  for (const DataType* type : options.types) {
    const auto width = static_cast<size_t>(type->bytes);
    const CallShape shape =
        collective.shape(options.maxBytes / width, width, state.groupRank, state.groupSize);
    const size_t inPlace = std::max(shape.inPlaceSend + shape.send, shape.inPlaceRecv + shape.recv);
    const auto shift = static_cast<size_t>(options.misalign) * width;
    most.send = std::max(most.send, shape.send * width + shift);
    most.recv = std::max(most.recv, std::max(shape.recv, inPlace) * width + shift);
  }
  most.recv += kGuardBytes;
  return most;
}

Outcome Job::prepareThread(int thread) {
  RankState* mine = ranksOf(thread);
  if (options.parallelInit)
    if (const Outcome outcome = initialise(mine, options.devicesPerThread); !outcome.isOk()) return outcome;
  for (int i = 0; i < options.devicesPerThread; ++i) {
    RankState& state = mine[i];
    const std::string who = "rank " + std::to_string(state.rank);
    if (const Outcome outcome = checkCuda(cudaSetDevice(state.device), "cudaSetDevice"); !outcome.isOk())
      return outcome;
    if (const Outcome outcome = Stream::create(options.nullStream, state.stream); !outcome.isOk())
      return outcome.within(who);
    if (const Outcome outcome = allocate(state); !outcome.isOk()) return outcome.within(who);
  }
  return registerBuffers(mine);
}

Outcome Job::allocate(RankState& state) {
  const BufferBytes bytes = bufferBytes(state);
  const auto source = options.localRegister > 0 ? DeviceBuffer::Source::nccl : DeviceBuffer::Source::cuda;
  if (const Outcome outcome = DeviceBuffer::allocate(source, bytes.send, state.send); !outcome.isOk())
    return outcome;
  return DeviceBuffer::allocate(source, bytes.recv, state.recv);
}

/// Those of one thread, in one group: registering a window waits for all ranks.
Outcome Job::registerBuffers(RankState* mine) {
  if (options.localRegister == 0) return Outcome::ok();
  if (const Outcome outcome = checkNccl(ncclGroupStart(), "ncclGroupStart"); !outcome.isOk()) return outcome;
  Outcome failed = Outcome::ok();
  for (int i = 0; i < options.devicesPerThread && failed.isOk(); ++i) {
    failed = checkCuda(cudaSetDevice(mine[i].device), "cudaSetDevice");
    if (failed.isOk()) failed = registerBuffersOf(mine[i]);
    if (!failed.isOk()) failed = failed.within("rank " + std::to_string(mine[i].rank));
  }
  const Outcome ended = checkNccl(ncclGroupEnd(), "ncclGroupEnd");
  return failed.isOk() ? ended : failed;
}

Outcome Job::registerBuffersOf(RankState& state) {
  const bool windows = options.localRegister == 2;
  const std::string what = windows ? "ncclCommWindowRegister" : "ncclCommRegister";
  const auto add = [&](const DeviceBuffer& buffer, void** handle, ncclWindow_t* window) {
    const ncclResult_t result = windows ? ncclCommWindowRegister(state.comm, buffer.data(), buffer.bytes(),
                                                                 window, NCCL_WIN_COLL_SYMMETRIC)
                                        : ncclCommRegister(state.comm, buffer.data(), buffer.bytes(), handle);
    return checkNccl(result, what, state.comm);
  };
  if (const Outcome outcome = add(state.send, &state.sendHandle, &state.sendWindow); !outcome.isOk())
    return outcome;
  return add(state.recv, &state.recvHandle, &state.recvWindow);
}

void Job::watch() {
  std::vector<Watchdog::Watched> comms;
  for (const RankState& state : ranks_)
    comms.push_back({state.comm, state.rank, state.stream.get(), state.device});
  watchdog.start(std::move(comms));
}

void Job::release(RankState& state) {
  cudaSetDevice(state.device);
  if (!state.comm || watchdog.aborted()) {
    state.comm = nullptr;
  } else if (watchdog.failed()) {
    ncclCommAbort(state.comm);
  } else {
    if (state.sendHandle) ncclCommDeregister(state.comm, state.sendHandle);
    if (state.recvHandle) ncclCommDeregister(state.comm, state.recvHandle);
    if (state.sendWindow) ncclCommWindowDeregister(state.comm, state.sendWindow);
    if (state.recvWindow) ncclCommWindowDeregister(state.comm, state.recvWindow);
    ncclCommDestroy(state.comm);
  }
  state.comm = nullptr;
  state.send = {};
  state.recv = {};
  state.stream = {};
}

void Job::cleanUp() {
  watchdog.stop();
  for (RankState& state : ranks_) release(state);
  ranks_.clear();
}

size_t Job::residentBytes() {
  unsigned long pages = 0;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/statm", "re"),
                                                             &std::fclose);
  if (!file || std::fscanf(file.get(), "%*u %lu", &pages) != 1) return 0;
  return pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

void Job::noteFirstUse(size_t residentBefore) {
  if (!firstUse_) firstUse_ = growth(residentBefore, residentBytes());
}

std::string Job::memoryText() const {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  size_t buffers = 0;
  for (const RankState& state : ranks_) buffers += state.send.bytes() + state.recv.bytes();
  std::string text = "# Memory of process 0   : buffers " + mebibytes(buffers);
  const size_t device = growth(freeAfterInit_, freeBefore_);
  if (device > 0) text += ", communicators on device 0 " + mebibytes(device);
  return text + ", resident: communicators " + mebibytes(growth(residentBefore_, residentAfterInit_)) +
         ", first operation " + mebibytes(firstUse_.value_or(0)) + ", all at most " +
         mebibytes(static_cast<size_t>(usage.ru_maxrss) << 10) + "\n";
}

}  // namespace tutti::perf
