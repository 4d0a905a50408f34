// The command line of the perf programs: nccl-tests' flags, and a few of our own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/datatype.h"
#include "common/pattern.h"

namespace tutti::perf {

/// Which number of the iterations is reported as the time of one operation.
enum class Statistic : uint8_t {
  mean,    // all iterations back to back, as nccl-tests does
  median,  // each iteration measured by itself, from a barrier to the last rank's end
  min,
};

/// How the ranks' times become one (-a).
enum class Average : uint8_t { rank0, mean, min, max };

/// When the host waits (-z).
enum class Blocking : uint8_t {
  never,                // after all iterations
  waitAndBarrier,       // after each operation
  wait,                 // after each operation, without a barrier
  waitAndBarrierOuter,  // after each iteration; the barrier is not timed
};

struct Options {
  int threads = 1;
  int devicesPerThread = 1;
  uint64_t minBytes = 32u << 20;
  uint64_t maxBytes = 32u << 20;
  uint64_t stepBytes = 1u << 20;
  uint64_t stepFactor = 1;  // 1: steps of stepBytes
  int iterations = 20;
  int warmup = 1;
  int aggregated = 1;
  int cycles = 1;  // 0: for ever
  bool parallelInit = false;
  int check = 1;
  Blocking blocking = Blocking::never;
  bool nullStream = false;
  int timeoutSeconds = 0;  // 0: none
  int graphLaunches = 0;
  bool cpuTime = false;
  int localRegister = 0;
  Average average = Average::mean;
  Statistic statistic = Statistic::mean;
  bool memoryReport = false;
  bool perIteration = false;
  int perIterationSkip = 0;
  int misalign = 0;  // elements
  bool timestamps = false;
  std::string jsonFile;
  std::vector<Operator> operators{Operator::sum};
  bool allOperators = false;
  std::vector<const DataType*> types{findDataType("float")};
  bool allTypes = false;
  int root = 0;
  bool allRoots = false;
  std::string algo;  // of tuttiCommSetAlgo; one name is for the measured function only
  std::string proto;
  int channels = 0;
  bool showAlgo = false;
  std::string commandLine;

  /// Something of the library's choice is fixed.
  bool pins() const { return !algo.empty() || !proto.empty() || channels != 0; }

  /// The sizes to measure, in bytes, ascending. Never empty.
  std::vector<uint64_t> sizes() const;
};

/// What to do after parsing.
struct ParseResult {
  enum class Action : uint8_t { run, help, version, fail } action = Action::run;
  Options options;
  std::string message;  // of fail: names the flag, what was given and what is expected
};

/// Reads argv (argv[0] is the program). Does not print and does not exit. Not thread-safe (getopt_long).
ParseResult parseOptions(int argc, char* const* argv);

/// The text of -h.
std::string usage(const std::string& program);

}  // namespace tutti::perf
