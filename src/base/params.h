// Every environment variable that the library reads, declared once.
//
//   const int64_t bytes = params().buffSize();
//   if (params().commId.isSet()) ...
//
// To add one, add a member to `Params`: its declaration is all there is (name, default, range, help), and
// `tutti-info` and the manual's table list it from there.
//
// A value comes from the environment, else from $NCCL_CONF_FILE (or ~/.nccl.conf), else from /etc/nccl.conf,
// else it is the default. Everything is read at the first use of params(). A bad value is reported by one
// warning that names variable, value and reason, and the default is used.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

class ParamBase;

/// Where a parameter's value comes from.
enum class ParamSource { standard, environment, file };

/// The list of all parameters, in order of declaration.
class ParamRegistry {
 public:
  ParamRegistry() = default;
  ParamRegistry(const ParamRegistry&) = delete;
  ParamRegistry& operator=(const ParamRegistry&) = delete;

  const std::vector<ParamBase*>& all() const { return params_; }

 private:
  friend class ParamBase;
  std::vector<ParamBase*> params_;
};

/// What all parameters have in common. Reading a value is thread-safe at any time.
class ParamBase {
 public:
  ParamBase(ParamRegistry& registry, const char* name, std::string standard, std::string type,
            const char* help);
  virtual ~ParamBase() = default;
  ParamBase(const ParamBase&) = delete;
  ParamBase& operator=(const ParamBase&) = delete;

  const char* name() const { return name_; }
  const char* help() const { return help_; }
  /// "integer 1..64", "LOC | SYS", "bytes >= 1024": for people.
  const std::string& type() const { return type_; }
  const std::string& standardText() const { return standard_; }
  ParamSource source() const { return source_.load(std::memory_order_acquire); }
  bool isSet() const { return source() != ParamSource::standard; }
  /// "environment", "/etc/nccl.conf:3", "default".
  std::string sourceText() const;
  virtual std::string valueText() const = 0;

 protected:
  friend class Params;
  /// Takes a value from text that is not empty; gives the reason when it cannot.
  virtual std::string parse(std::string_view text) = 0;
  virtual void setStandard() = 0;

  mutable std::mutex mutex_;  // guards what is not atomic

 private:
  const char* name_;
  const char* help_;
  std::string standard_;
  std::string type_;
  std::atomic<ParamSource> source_{ParamSource::standard};
  std::string where_;
};

/// A whole number in NCCL's form: decimal, 0x hexadecimal or 0 octal.
class IntParam : public ParamBase {
 public:
  IntParam(ParamRegistry& registry, const char* name, int64_t standard, int64_t min, int64_t max,
           const char* help);
  int64_t operator()() const { return value_.load(std::memory_order_relaxed); }
  std::string valueText() const override;

 protected:
  IntParam(ParamRegistry& registry, const char* name, int64_t standard, int64_t min, int64_t max,
           std::string type, const char* help, std::string standardText = {});
  std::string parse(std::string_view text) override;
  void setStandard() override { value_.store(standardValue_, std::memory_order_relaxed); }
  std::string accept(int64_t value);

  int64_t standardValue_;
  int64_t min_;
  int64_t max_;
  std::atomic<int64_t> value_;
};

/// Bytes: a whole number, also with K, M or G (powers of 1024).
class SizeParam : public IntParam {
 public:
  SizeParam(ParamRegistry& registry, const char* name, int64_t standard, int64_t min, int64_t max,
            const char* help);

 protected:
  std::string parse(std::string_view text) override;
};

/// 0 or 1; any other whole number counts as 1, as in NCCL.
class BoolParam : public ParamBase {
 public:
  BoolParam(ParamRegistry& registry, const char* name, bool standard, const char* help);
  bool operator()() const { return value_.load(std::memory_order_relaxed); }
  std::string valueText() const override { return (*this)() ? "1" : "0"; }

 private:
  std::string parse(std::string_view text) override;
  void setStandard() override { value_.store(standardValue_, std::memory_order_relaxed); }

  bool standardValue_;
  std::atomic<bool> value_;
};

/// A time in seconds, also a fraction ("0.5"). Kept to the millisecond.
class SecondsParam : public IntParam {
 public:
  /// All times in milliseconds, whole seconds.
  SecondsParam(ParamRegistry& registry, const char* name, int64_t standardMs, int64_t mostMs,
               const char* help);
  std::chrono::milliseconds time() const { return std::chrono::milliseconds((*this)()); }
  std::string valueText() const override;

 private:
  std::string parse(std::string_view text) override;
};

class StringParam : public ParamBase {
 public:
  StringParam(ParamRegistry& registry, const char* name, const char* standard, const char* help);
  std::string operator()() const;
  std::string valueText() const override { return (*this)(); }

 private:
  std::string parse(std::string_view text) override;
  void setStandard() override;

  std::string value_;
};

/// One of a few words, in any case; the value is the word's index in the declaration.
class EnumParam : public ParamBase {
 public:
  EnumParam(ParamRegistry& registry, const char* name, int standard, std::initializer_list<const char*> words,
            const char* help);
  int operator()() const { return value_.load(std::memory_order_relaxed); }
  std::string valueText() const override { return words_[static_cast<size_t>((*this)())]; }

 protected:
  std::string parse(std::string_view text) override;
  void setStandard() override { value_.store(standardValue_, std::memory_order_relaxed); }

 private:
  std::vector<std::string> words_;
  int standardValue_;
  std::atomic<int> value_;
};

/// The name of a path level that is given as one of NCCL's old numbers (0 LOC, 1 PIX, 2 PXB, 3 PHB, 4 and
/// above SYS); any other text as it is.
std::string_view pathLevelName(std::string_view text);

/// How far apart two devices may be, by the kind of path between them: a name in any case, from LOC (the same
/// device) to SYS (between NUMA nodes), or one of the old numbers (0 LOC, 1 PIX, 2 PXB, 3 PHB, 4 and above
/// SYS). topology/paths.h says what the names mean.
class PathLevelParam : public EnumParam {
 public:
  PathLevelParam(ParamRegistry& registry, const char* name, const char* help);
  /// The library decides.
  bool isAuto() const { return (*this)() == 0; }
  /// LOC 0, NVL 1, ... SYS 9: tutti::PathType. Only when it is not automatic.
  int level() const { return (*this)() - 1; }

 private:
  std::string parse(std::string_view text) override;
};

/// All variables. A member that says "automatic" by its default uses -1 for it.
class Params : public ParamRegistry {
 public:
  // Log.
  EnumParam debug{*this,
                  "NCCL_DEBUG",
                  0,
                  {"NONE", "VERSION", "WARN", "INFO", "TRACE"},
                  "What is logged: each level includes the ones before it."};
  StringParam debugSubsys{*this, "NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV",
                          "Subsystems whose INFO and TRACE lines are logged, separated by commas; ^ in front "
                          "means all but these. INIT COLL P2P SHM NET GRAPH TUNING ENV ALLOC CALL PROXY NVLS "
                          "BOOTSTRAP REG PROFILE RAS ALL."};
  StringParam debugFile{*this, "NCCL_DEBUG_FILE", "",
                        "File that log lines are appended to; %h becomes the host name, %p the process id. "
                        "Standard output when empty."};
  StringParam debugTimestampFormat{*this, "NCCL_DEBUG_TIMESTAMP_FORMAT", "",
                                   "strftime format put before each log line; %3f (1 to 9 digits) is the "
                                   "fraction of the second."};

  // Bootstrap and sockets.
  StringParam socketIfname{*this, "NCCL_SOCKET_IFNAME", "",
                           "Network interfaces for TCP: prefixes separated by commas; ^ in front excludes "
                           "them, = takes exact names, ^= excludes exact names."};
  EnumParam socketFamily{
      *this, "NCCL_SOCKET_FAMILY", 0, {"ANY", "AF_INET", "AF_INET6"}, "Address family of TCP connections."};
  StringParam oobNetIfname{*this, "NCCL_OOB_NET_IFNAME", "",
                           "As NCCL_SOCKET_IFNAME, for the bootstrap only; NCCL_SOCKET_IFNAME when empty."};
  StringParam commId{*this, "NCCL_COMM_ID", "",
                     "host:port where rank 0 listens, in place of the address in the unique id. Carries no "
                     "secret: see TUTTI_SECRET_FILE."};
  StringParam hostId{*this, "NCCL_HOSTID", "",
                     "Identifies the host: ranks with equal values share memory. Host name, boot id and "
                     "network namespace when empty."};
  IntParam socketRetryCnt{*this,   "NCCL_SOCKET_RETRY_CNT",
                          34,      0,
                          1000000, "How often a connection that is refused or times out is tried again."};
  IntParam socketRetrySleepMsec{
      *this, "NCCL_SOCKET_RETRY_SLEEP_MSEC",
      100,   1,
      60000, "Pause before the first retry, in ms; the n-th pause is n times as long."};
  IntParam nsocksPerThread{*this, "NCCL_NSOCKS_PERTHREAD",
                           -1,    -1,
                           16,    "TCP connections in parallel to one peer, per channel; -1 is automatic."};
  StringParam secretFile{*this, "TUTTI_SECRET_FILE", "",
                         "File whose content is the secret of jobs that use NCCL_COMM_ID; must be readable "
                         "by its owner only and hold at least 16 bytes."};
  IntParam initTimeout{*this, "TUTTI_INIT_TIMEOUT",
                       120,   1,
                       86400, "Seconds after which making a communicator fails when ranks are missing."};
  SecondsParam peerTimeout{*this, "TUTTI_PEER_TIMEOUT", 60000, 86400000,
                           "Seconds without any answer from a peer's host after which its ranks count as "
                           "dead; 0: as TCP decides (15 "
                           "minutes or more, and never while nothing is sent)."};
  SecondsParam timeout{*this, "TUTTI_TIMEOUT", 0, 31536000000,
                       "Seconds without movement after which a running operation fails; 0 means never."};
  SecondsParam stallWarn{
      *this, "TUTTI_STALL_WARN", 30000, 31536000000,
      "Seconds without movement after which a running operation is reported, with who waits "
      "for whom; 0 means never."};
  BoolParam check{
      *this, "TUTTI_CHECK", false,
      "1: ranks compare collective, count, type, operator and root of each call, and the bytes of "
      "each message, before anything moves; a difference is an error."};
  BoolParam rasEnable{*this, "NCCL_RAS_ENABLE", true,
                      "0: nobody can ask this process how its communicators are (tutti-ras, ncclras)."};
  StringParam rasAddr{
      *this, "NCCL_RAS_ADDR", "localhost:28028",
      "host:port at which tutti-ras and ncclras ask about a running job. The first process of a "
      "host gets the port."};

  // Channels, algorithms, transports.
  SizeParam buffSize{*this, "NCCL_BUFFSIZE",  4 << 20,
                     4096,  int64_t{1} << 32, "Bytes of buffer for each connection and channel."};
  IntParam minNchannels{
      *this, "NCCL_MIN_NCHANNELS", -1, -1, 64, "Least number of channels; -1 is automatic."};
  IntParam maxNchannels{
      *this, "NCCL_MAX_NCHANNELS", -1, -1, 64, "Largest number of channels; -1 is automatic."};
  StringParam algo{
      *this, "NCCL_ALGO", "",
      "Algorithms that may be used: [list][;function:list...], ^ in front of a list inverts it."};
  StringParam proto{*this, "NCCL_PROTO", "", "Protocols that may be used; same form as NCCL_ALGO."};
  StringParam tuningFile{
      *this, "TUTTI_TUNING_FILE", "",
      "File with measured cost parameters and fixed choices (tutti-tune writes it). Its content must "
      "be the same for all ranks."};
  StringParam algoFiles{*this, "TUTTI_ALGO_FILES", "",
                        "Files with algorithms (JSON, or MSCCL's XML), or folders of them, separated by "
                        "commas. All ranks must have the same. They are proved when a communicator is made, "
                        "and used for calls of their sizes or where NCCL_ALGO names them."};
  BoolParam shmDisable{*this, "NCCL_SHM_DISABLE", false, "1: no shared memory between processes."};
  BoolParam p2pDisable{*this, "NCCL_P2P_DISABLE", false,
                       "1: no direct access to peers' buffers (also inside a process)."};
  PathLevelParam p2pLevel{*this, "NCCL_P2P_LEVEL",
                          "Longest path between two devices that access each other's memory directly; LOC "
                          "is NCCL_P2P_DISABLE=1. Numbers: 0 LOC, 1 PIX, 2 PXB, 3 PHB, 4 SYS."};
  IntParam spinMicros{*this,
                      "TUTTI_SPIN_US",
                      50,
                      0,
                      1000000,
                      "Microseconds that an enqueuing thread works on a collective before it hands the rest "
                      "to the stream's worker."};
  StringParam simdTarget{
      *this, "TUTTI_SIMD_TARGET", "",
      "Instruction set of reductions: scalar, sse4, avx2, avx512 or neon; the CPU's best when "
      "empty. Results do not depend on it."};

  // Topology.
  StringParam topoFile{*this, "NCCL_TOPO_FILE", "",
                       "Topology file that describes this host; what it leaves open is detected. "
                       "/var/run/nvidia-topologyd/virtualTopology.xml, where that exists, when empty."};
  StringParam topoDumpFile{*this, "NCCL_TOPO_DUMP_FILE", "",
                           "File that the topology of the host of rank NCCL_TOPO_DUMP_FILE_RANK is written "
                           "to."};
  IntParam topoDumpFileRank{
      *this, "NCCL_TOPO_DUMP_FILE_RANK", 0, 0, 1 << 30, "Rank that writes NCCL_TOPO_DUMP_FILE."};
  StringParam graphFile{
      *this, "NCCL_GRAPH_FILE", "",
      "File with the rings and trees of this host, in NCCL's form, instead of those that are "
      "searched for. On host devices dev is the number of a NUMA node."};
  StringParam graphDumpFile{
      *this, "NCCL_GRAPH_DUMP_FILE", "",
      "File that rings and trees of the host of rank NCCL_GRAPH_DUMP_FILE_RANK are written to."};
  IntParam graphDumpFileRank{
      *this, "NCCL_GRAPH_DUMP_FILE_RANK", 0, 0, 1 << 30, "Rank that writes NCCL_GRAPH_DUMP_FILE."};
  IntParam crossNic{
      *this,
      "NCCL_CROSS_NIC",
      2,
      0,
      2,
      "Whether a ring may leave a host by another port than the one it came in by: 0 no, 1 yes, 2 where "
      "that brings more bandwidth."};
  BoolParam pxnDisable{*this, "NCCL_PXN_DISABLE", false,
                       "1: rings and trees do not use a port through another GPU close to it."};
  BoolParam nvbDisable{*this, "NCCL_NVB_DISABLE", false, "1: NVLink paths do not lead through another GPU."};
  BoolParam ignoreCpuAffinity{*this, "NCCL_IGNORE_CPU_AFFINITY", false,
                              "1: the library's threads may run on all CPUs of the device's NUMA node, also "
                              "those that the calling thread may not use."};
  PathLevelParam netGdrLevel{*this, "NCCL_NET_GDR_LEVEL",
                             "Longest path between a GPU and a network card that accesses its memory. "
                             "Numbers as for NCCL_P2P_LEVEL. No effect yet: there is no GPU memory."};

  // Communicators and the rest.
  EnumParam checkMode{
      *this,
      "NCCL_CHECK_MODE",
      0,
      {"DEFAULT", "DEBUG_LOCAL", "DEBUG_GLOBAL"},
      "Extra checks of arguments: DEBUG_LOCAL checks pointers, DEBUG_GLOBAL also compares calls "
      "between ranks."};
  BoolParam checkPointers{*this, "NCCL_CHECK_POINTERS", false, "1: check the pointers given to collectives."};
  IntParam commBlocking{*this, "NCCL_COMM_BLOCKING",
                        -1,    -1,
                        1,     "Overrides ncclConfig_t::blocking; -1 leaves it to the program."};
  BoolParam setThreadName{*this, "NCCL_SET_THREAD_NAME", false, "1: name the library's threads."};
  IntParam hostDevices{*this, "TUTTI_HOST_DEVICES", 8, 0, 1024, "Devices that the host runtime shows."};
  StringParam hostRuntime{
      *this, "TUTTI_HOST_RUNTIME", "",
      "Path of the host runtime (libtutti_hostrt.so.1) that programs without CUDA calls use; "
      "looked for beside libnccl.so.2, in host/, when empty."};
  EnumParam runtime{*this,
                    "TUTTI_RUNTIME",
                    0,
                    {"AUTO", "HOST", "CUDA"},
                    "Runtime that Tutti's programs use: AUTO takes CUDA where a driver works."};

  BoolParam hostKernels{
      *this, "TUTTI_HOST_KERNELS", false,
      "1: kernels on virtual GPUs run the calls of ranks that share a process, instead of CPU "
      "threads (docs/virtual-gpus.md)."};
  BoolParam multiRankGpu{
      *this, "NCCL_MULTI_RANK_GPU_ENABLE", false,
      "1: several ranks of a communicator may share a GPU, while all their thread blocks fit "
      "it at once. Host devices always may."};

  /// What was wrong with the values read last, one text each: bad values, malformed lines, unreadable files.
  std::vector<std::string> problems() const;
  /// NCCL_* and TUTTI_* settings that are given, but that nothing here reads: "NCCL_X (environment)".
  std::vector<std::string> unread() const;

  /// Reads everything again (tests; a program that changed its environment). Log settings follow.
  void reload();
  /// Text of a configuration file: values by name. Problems are appended as "path:line: reason".
  struct FileValue {
    std::string value;
    int line = 0;
  };
  static std::map<std::string, FileValue> parseFile(std::string_view text, std::string_view path,
                                                    std::vector<std::string>& problems);

 private:
  struct Found {
    std::string value, where;
    ParamSource source;
  };
  std::vector<std::string> findUnread(const std::map<std::string, Found>& found) const;
  std::string suggestion(std::string_view setting) const;
  friend Params& params();
  Params() = default;
  void load();
  void loadAndReport(bool again);

  mutable std::mutex loadMutex_;
  std::vector<std::string> problems_;  // guarded by loadMutex_, as the next
  std::vector<std::string> unread_;
  std::atomic<bool> loaded_{false};
};

/// The process's parameters. Never destroyed, so usable at any time.
Params& params();

}  // namespace tutti
