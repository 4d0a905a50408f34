#include "tutti_info/machine.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "algorithms/algorithm_files.h"
#include "algorithms/selector.h"
#include "algorithms/tuning_file.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/params.h"
#include "base/socket.h"
#include "device/host_table.h"
#include "executor/host/simd/target.h"
#include "nccl.h"
#include "topology/host_identity.h"

namespace tutti::info {
namespace {

Library findLibrary() {
  Library library;
  void* handle = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    library.why = why != nullptr ? why : "not found";
    return library;
  }
  void* symbol = ::dlsym(handle, "ncclGetVersion");
  Dl_info where{};
  if (symbol != nullptr && ::dladdr(symbol, &where) != 0 && where.dli_fname != nullptr)
    library.path = where.dli_fname;
  if (symbol != nullptr) reinterpret_cast<ncclResult_t (*)(int*)>(symbol)(&library.version);
  library.isOurs = ::dlsym(handle, "tuttiStreamSynchronize") != nullptr;
  return library;
}

unsigned usableProcessors() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<unsigned>(CPU_COUNT(&set));
  return std::thread::hardware_concurrency();
}

void addSimd(Report& report) {
  for (const SimdTarget target : availableTargets()) report.machine.simdTargets.emplace_back(name(target));
  SimdTarget used = bestTarget();
  if (const std::string chosen = params().simdTarget(); !chosen.empty()) {
    if (const auto parsed = parseTarget(chosen); parsed.isOk()) {
      used = *parsed;
    } else {
      report.warnings.push_back("TUTTI_SIMD_TARGET: " + parsed.status().message());
    }
  }
  report.machine.simdTarget = name(used);
}

/// What every communicator would refuse: algorithms, protocols, and files of them.
void addChoice(Report& report) {
  const auto warn = [&](const Status& status, const char* setting) {
    if (!status.isOk()) report.warnings.push_back(status.withContext("{}", setting).message());
  };
  const auto texts = AlgorithmTexts::read(params().algoFiles());
  warn(texts.status(), "TUTTI_ALGO_FILES");
  CandidateSet candidates = CandidateSet::shipped();
  if (texts.isOk())
    for (const AlgorithmTexts::File& file : texts->files) {
      const auto algorithm = importAlgorithmText(file.text, file.path);
      warn(algorithm.status(), "TUTTI_ALGO_FILES");
      if (algorithm.isOk() && candidates.find(spelledAlgorithm(algorithm->name)) == nullptr)
        candidates.addElsewhere(spelledAlgorithm(algorithm->name), "is in " + file.path);
    }
  SelectorSettings settings;
  settings.algo = params().algo();
  settings.proto = params().proto();
  auto tuning = TuningSource::read(params().tuningFile()).load();
  warn(tuning.status(), "TUTTI_TUNING_FILE");
  warn(Selector::create(std::make_shared<const CandidateSet>(candidates), settings).status(), "choice");
  // Alone, so that both are told apart.
  settings.algo.clear();
  settings.proto.clear();
  if (!tuning.isOk()) return;
  settings.tuning = std::move(tuning).value();
  warn(Selector::create(std::make_shared<const CandidateSet>(std::move(candidates)), settings).status(),
       "TUTTI_TUNING_FILE");
}

void addRuntime(Report& report) {
  const auto table = hostTable();
  if (!table.isOk()) {
    report.machine.runtime = "none";
    report.warnings.push_back(table.status().message());
    return;
  }
  report.machine.runtime = "host";
  if ((*table)->deviceCount(&report.machine.devices) != 0) report.machine.devices = 0;
}

void addInterfaces(Report& report) {
  const auto all = listInterfaces();
  if (!all.isOk()) {
    report.warnings.push_back(all.status().message());
    return;
  }
  for (const NetworkInterface& one : *all)
    report.machine.interfaces.push_back({one.name, one.address.hostText(), false, false});
  for (const bool bootstrap : {true, false}) {
    const auto chosen = usableInterfaces(interfaceRulesFromParams(bootstrap));
    if (!chosen.isOk()) {
      report.warnings.push_back((bootstrap ? "bootstrap: " : "data: ") + chosen.status().message());
      continue;
    }
    for (Interface& one : report.machine.interfaces)
      for (const NetworkInterface& other : *chosen)
        if (other.name == one.name && other.address.hostText() == one.address)
          (bootstrap ? one.bootstrap : one.data) = true;
  }
}

void addTransports(Report& report) {
  std::vector<Transport>& list = report.machine.transports;
  const bool noShm = params().shmDisable(), noDirect = params().p2pDisable();
  list.push_back({"threads", true, "ranks of one process"});
  const auto file = MemoryFile::create("tutti-info", 4096);
  Transport shm{"shared memory", file.isOk() && !noShm, "processes of one host; memory files"};
  if (noShm) shm.note = "off: NCCL_SHM_DISABLE=1 (" + params().shmDisable.sourceText() + ")";
  if (!file.isOk()) shm.note = file.status().message();
  list.push_back(shm);
  list.push_back({"direct access", !noDirect,
                  noDirect ? "off: NCCL_P2P_DISABLE=1 (" + params().p2pDisable.sourceText() + ")"
                           : "peers' registered buffers are read in place"});
  const bool anyData = std::any_of(report.machine.interfaces.begin(), report.machine.interfaces.end(),
                                   [](const Interface& one) { return one.data; });
  list.push_back({"sockets", anyData, anyData ? "TCP over the interfaces above" : "no usable interface"});
}

void addSettings(Report& report) {
  for (const ParamBase* param : params().all())
    report.settings.push_back({param->name(), param->valueText(), param->standardText(), param->sourceText(),
                               param->isSet(), param->help()});
  for (const std::string& problem : params().problems()) report.warnings.push_back(problem);
  for (const std::string& setting : params().unread())
    report.warnings.push_back(setting + " has no effect in this release");
}

std::string versionText(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

void addLibraryWarnings(Report& report) {
  const Library& library = report.library;
  if (library.path.empty()) {
    report.warnings.push_back("no libnccl.so.2 can be loaded: " + library.why);
  } else if (!library.isOurs) {
    report.warnings.push_back(fmt::format(
        "programs started here load another NCCL, {} ({}): put Tutti's folder in front of LD_LIBRARY_PATH",
        library.path, versionText(library.version)));
  }
}

}  // namespace

Report collect() {
  Report report;
  report.tuttiVersion = tuttiVersion();
  report.ncclVersion = versionText(NCCL_VERSION_CODE);
  report.build = TUTTI_BUILD_TYPE ", " TUTTI_BUILD_COMPILER;
  if (*TUTTI_BUILD_SANITIZE != 0) report.build += ", sanitizers " TUTTI_BUILD_SANITIZE;
  report.library = findLibrary();
  if (const auto self = thisProcess(); self.isOk()) {
    report.machine.hostName = self->hostName;
    report.machine.hostId = self->hostId;
  } else {
    report.warnings.push_back(self.status().message());
  }
  report.machine.processors = usableProcessors();
  addSettings(report);
  addLibraryWarnings(report);
  addSimd(report);
  addChoice(report);
  addRuntime(report);
  addInterfaces(report);
  addTransports(report);
  return report;
}

}  // namespace tutti::info
