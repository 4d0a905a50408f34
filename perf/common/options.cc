#include "common/options.h"

#include <getopt.h>

#include <array>
#include <limits>
#include <optional>

#include "common/size.h"

namespace tutti::perf {
namespace {

constexpr int kStat = 256;  // flags without a letter
constexpr int kVersion = 257;
constexpr int kAlgo = 258;
constexpr int kProto = 259;
constexpr int kChannels = 260;
constexpr int kShowAlgo = 261;
constexpr uint64_t kMaxInt = std::numeric_limits<int>::max();

struct Flag {
  int letter;
  const char* name;
  const char* argument;  // null: takes none
  const char* help;
};

constexpr std::array kFlags = {
    Flag{'t', "nthreads", "threads", "threads per process (1)"},
    Flag{'g', "ngpus", "devices", "devices per thread (1)"},
    Flag{'b', "minbytes", "bytes", "smallest size; K, M, G mean powers of 1024 (32M)"},
    Flag{'e', "maxbytes", "bytes", "largest size (32M)"},
    Flag{'i', "stepbytes", "bytes", "fixed step between sizes (1M)"},
    Flag{'f', "stepfactor", "factor", "factor between sizes, instead of a fixed step"},
    Flag{'n', "iters", "count", "timed iterations (20)"},
    Flag{'w', "warmup_iters", "count", "iterations before those (1)"},
    Flag{'m', "agg_iters", "count", "operations in one group per iteration (1)"},
    Flag{'N', "run_cycles", "count", "times to run all sizes, 0 for ever (1)"},
    Flag{'p', "parallel_init", "0/1", "each thread initialises its own communicators (0)"},
    Flag{'c', "check", "count", "checked iterations, 0 for none (1)"},
    Flag{'o', "op", "sum|prod|min|max|avg|mulsum|all", "reduction operator (sum)"},
    Flag{'d', "datatype", "type|all",
         "int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2 (float)"},
    Flag{'r', "root", "rank|all", "root of broadcast, reduce, gather and scatter (0)"},
    Flag{'z', "blocking", "0/1/2/3",
         "wait: 0 at the end, 1 after each operation with a barrier, 2 without one, 3 after each iteration "
         "(0)"},
    Flag{'y', "stream_null", "0/1", "use the null stream (0)"},
    Flag{'T', "timeout", "seconds", "give up when one size takes longer, 0 for never (0)"},
    Flag{'G', "cudagraph", "launches", "capture the iterations, launch the graph this many times (0)"},
    Flag{'C', "report_cputime", "0/1", "report the time of the calls, not of the operation (0)"},
    Flag{'a', "average", "0/1/2/3", "time over all ranks: 0 of rank 0, 1 average, 2 minimum, 3 maximum (1)"},
    Flag{'R', "local_register", "0/1/2",
         "memory from ncclMemAlloc, registered (1) or as symmetric windows (2) (0)"},
    Flag{'I', "per_iter_timing", "0/1",
         "time each iteration by events and print minimum, p50, p99, maximum (0)"},
    Flag{'K', "per_iter_skip", "count", "leave the first iterations out of -I (0)"},
    Flag{'u', "unalign", "elements", "index of the first element used in each buffer (0)"},
    Flag{'S', "report_timestamps", "0/1", "end each line with the time of day (0)"},
    Flag{'M', "memory", "0/1", "report the memory that the run used, after the results (0)"},
    Flag{'J', "output_file", "file.json", "also write everything to this file"},
    Flag{'x', "cta_policy", "0/1/2", "accepted, without effect: operations use no CTAs (0)"},
    Flag{'D', "device_implementation", "0",
         "0: calls of the library; kernels that communicate are not here (0)"},
    Flag{'V', "device_cta_count", "count", "accepted, without effect: belongs to -D (16)"},
    Flag{kStat, "stat", "mean|median|min",
         "mean of iterations run back to back, or median or minimum of single ones (mean)"},
    Flag{kAlgo, "algo", "name", "run this algorithm; also a list in the form of NCCL_ALGO"},
    Flag{kProto, "proto", "name", "use this protocol; also a list in the form of NCCL_PROTO"},
    Flag{kChannels, "channels", "count", "use this many channels, 0: as the library chooses (0)"},
    Flag{kShowAlgo, "show-algo", nullptr, "end each line with algorithm:protocol:channels that ran it"},
    Flag{kVersion, "version", nullptr, "show the version"},
    Flag{'h', "help", nullptr, "show this text"},
};

/// One parse: keeps the first error.
class Parser {
 public:
  Options options;
  std::string error;

  void read(int letter, const std::string& text);
  void checkTogether();
  std::string notInAGraph() const;

 private:
  void fail(const std::string& text, const char* expected) {
    if (error.empty()) error = flag_ + " " + text + ": expected " + expected;
  }
  int number(const std::string& text, int least, int most = std::numeric_limits<int>::max()) {
    const auto value = parseNumber(text, static_cast<uint64_t>(most));
    if (value && *value >= static_cast<uint64_t>(least)) return static_cast<int>(*value);
    const std::string range =
        most == std::numeric_limits<int>::max()
            ? "a whole number, at least " + std::to_string(least)
            : "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
    fail(text, range.c_str());
    return least;
  }
  uint64_t size(const std::string& text) {
    const auto value = parseSize(text);
    if (!value) fail(text, "a size such as 8, 64K, 128M or 2G");
    return value.value_or(0);
  }
  bool truth(const std::string& text) { return number(text, 0, 1) != 0; }
  bool readWork(int letter, const std::string& text);
  void readChoice(int letter, const std::string& text);
  void readOperators(const std::string& text);
  void readTypes(const std::string& text);
  void readStatistic(const std::string& text);

  std::string flag_;
};

void Parser::readOperators(const std::string& text) {
  if (text == "all") {
    options.allOperators = true;
    options.operators = {Operator::sum, Operator::prod, Operator::max,
                         Operator::min, Operator::avg,  Operator::mulsum};
    return;
  }
  const Operator op = findOperator(text);
  if (op == Operator::none) return fail(text, "sum, prod, min, max, avg, mulsum or all");
  options.operators = {op};
}

void Parser::readTypes(const std::string& text) {
  if (text == "all") {
    options.allTypes = true;
    options.types.clear();
    for (const DataType& type : dataTypes()) options.types.push_back(&type);
    return;
  }
  const DataType* type = findDataType(text);
  if (!type)
    return fail(
        text,
        "int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, f8e4m3, f8e5m2 or all");
  options.types = {type};
}

void Parser::readStatistic(const std::string& text) {
  if (text == "mean")
    options.statistic = Statistic::mean;
  else if (text == "median")
    options.statistic = Statistic::median;
  else if (text == "min")
    options.statistic = Statistic::min;
  else
    fail(text, "mean, median or min");
}

bool Parser::readWork(int letter, const std::string& text) {
  switch (letter) {
    case 't':
      options.threads = number(text, 1, 65536);
      return true;
    case 'g':
      options.devicesPerThread = number(text, 1, 65536);
      return true;
    case 'b':
      options.minBytes = size(text);
      return true;
    case 'e':
      options.maxBytes = size(text);
      return true;
    case 'i':
      options.stepBytes = size(text);
      return true;
    case 'f':
      options.stepFactor = static_cast<uint64_t>(number(text, 2));
      return true;
    case 'n':
      options.iterations = number(text, 1);
      return true;
    case 'w':
      options.warmup = number(text, 0);
      return true;
    case 'm':
      options.aggregated = number(text, 1);
      return true;
    case 'N':
      options.cycles = number(text, 0);
      return true;
    case 'c':
      options.check = number(text, 0);
      return true;
    case 'T':
      options.timeoutSeconds = number(text, 0);
      return true;
    case 'G':
      options.graphLaunches = number(text, 0);
      return true;
    case 'K':
      options.perIterationSkip = number(text, 0);
      return true;
    case 'u':
      options.misalign = number(text, 0, 1 << 20);
      return true;
    default:
      return false;
  }
}

void Parser::readChoice(int letter, const std::string& text) {
  switch (letter) {
    case 'p':
      options.parallelInit = truth(text);
      return;
    case 'o':
      return readOperators(text);
    case 'd':
      return readTypes(text);
    case 'r':
      options.allRoots = text == "all";
      if (!options.allRoots) options.root = number(text, 0);
      return;
    case 'z':
      options.blocking = static_cast<Blocking>(number(text, 0, 3));
      return;
    case 'y':
      options.nullStream = truth(text);
      return;
    case 'C':
      options.cpuTime = truth(text);
      return;
    case 'a':
      options.average = static_cast<Average>(number(text, 0, 3));
      return;
    case 'R':
      options.localRegister = number(text, 0, 2);
      return;
    case 'I':
      options.perIteration = truth(text);
      return;
    case 'S':
      options.timestamps = truth(text);
      return;
    case 'M':
      options.memoryReport = truth(text);
      return;
    case 'x':
      number(text, 0, 2);
      return;
    case 'V':
      number(text, 1, 65536);
      return;
    case 'D':
      if (text != "0")
        fail(text, "0: kernels that communicate by themselves need a GPU and are not supported");
      return;
    case 'J':
      if (!text.ends_with(".json")) return fail(text, "a file name that ends in .json");
      options.jsonFile = text;
      return;
    case kStat:
      return readStatistic(text);
    case kAlgo:
      if (text.empty()) fail(text, "the name of an algorithm");
      options.algo = text;
      return;
    case kProto:
      if (text.empty()) fail(text, "the name of a protocol");
      options.proto = text;
      return;
    case kChannels:
      options.channels = number(text, 0, 64);
      return;
    default:
      return;
  }
}

void Parser::read(int letter, const std::string& text) {
  for (const Flag& flag : kFlags)
    if (flag.letter == letter) flag_ = std::string("--") + flag.name;
  if (!readWork(letter, text)) readChoice(letter, text);
}

/// The flag that a graph of all iterations on a stream of its own rules out; empty when there is none.
std::string Parser::notInAGraph() const {
  if (options.blocking != Blocking::never) return "--blocking: nothing waits between captured iterations";
  if (options.nullStream) return "--stream_null: the null stream cannot be captured";
  if (options.perIteration) return "--per_iter_timing: events inside of a graph have no time";
  if (options.statistic != Statistic::mean) return "--stat: the iterations are one launch";
  return "";
}

void Parser::checkTogether() {
  if (!error.empty()) return;
  if (options.maxBytes < options.minBytes)
    error = "--maxbytes " + std::to_string(options.maxBytes) + ": less than --minbytes " +
            std::to_string(options.minBytes);
  else if (options.stepFactor == 1 && options.stepBytes == 0 && options.maxBytes > options.minBytes)
    error = "--stepbytes 0: would never reach --maxbytes";
  else if (options.stepFactor > 1 && options.minBytes == 0 && options.maxBytes > 0)
    error = "--minbytes 0: no factor (--stepfactor) leads from there to --maxbytes";
  else if (options.graphLaunches > 0 && !notInAGraph().empty())
    error = "--cudagraph " + std::to_string(options.graphLaunches) + ": cannot go with " + notInAGraph();
  else if (options.perIteration && options.perIterationSkip >= options.iterations)
    error = "--per_iter_skip " + std::to_string(options.perIterationSkip) + ": leaves none of the " +
            std::to_string(options.iterations) + " iterations";
}

struct GetoptTables {
  std::string letters = "+:";  // stop at the first operand; report a missing argument as ':'
  std::vector<option> longNames;
};

GetoptTables getoptTables() {
  GetoptTables tables;
  for (const Flag& flag : kFlags) {
    const int needs = flag.argument ? required_argument : no_argument;
    tables.longNames.push_back({flag.name, needs, nullptr, flag.letter});
    if (flag.letter >= kStat) continue;
    tables.letters += static_cast<char>(flag.letter);
    if (flag.argument) tables.letters += ':';
  }
  tables.longNames.push_back({nullptr, 0, nullptr, 0});
  return tables;
}

}  // namespace

std::vector<uint64_t> Options::sizes() const {
  std::vector<uint64_t> all;
  uint64_t size = minBytes;
  while (size <= maxBytes) {
    all.push_back(size);
    const bool overflows = stepFactor > 1 ? size > std::numeric_limits<uint64_t>::max() / stepFactor
                                          : size > std::numeric_limits<uint64_t>::max() - stepBytes;
    const uint64_t next = stepFactor > 1 ? size * stepFactor : size + stepBytes;
    if (overflows || next <= size) break;
    size = next;
  }
  return all;
}

ParseResult parseOptions(int argc, char* const* argv) {
  const GetoptTables tables = getoptTables();
  Parser parser;
  for (int i = 0; i < argc; ++i) parser.options.commandLine += (i ? " " : "") + std::string(argv[i]);
  ParseResult result;
  optind = 0;  // glibc: start afresh, also after an earlier parse
  opterr = 0;
  while (parser.error.empty()) {
    const int current = optind > 0 ? optind : 1;
    const int letter = getopt_long(argc, argv, tables.letters.c_str(), tables.longNames.data(), nullptr);
    if (letter == -1) break;
    if (letter == 'h') {
      result.action = ParseResult::Action::help;
      return result;
    }
    if (letter == kVersion) {
      result.action = ParseResult::Action::version;
      return result;
    }
    if (letter == kShowAlgo) {
      parser.options.showAlgo = true;
      continue;
    }
    if (letter == '?') {
      const bool isLetter = optopt > 0 && optopt < kStat;
      parser.error = "unknown option ";
      parser.error += isLetter ? std::string{'-', static_cast<char>(optopt)} : std::string(argv[current]);
    } else if (letter == ':') {
      parser.error = std::string(argv[optind - 1]) + ": needs an argument";
    } else {
      parser.read(letter, optarg);
    }
  }
  if (parser.error.empty() && optind < argc)
    parser.error = "unexpected argument " + std::string(argv[optind]);
  parser.checkTogether();
  result.options = std::move(parser.options);
  if (!parser.error.empty()) {
    result.action = ParseResult::Action::fail;
    result.message = parser.error;
  }
  return result;
}

std::string usage(const std::string& program) {
  std::string text = "USAGE: " + program + " [options]\n";
  for (const Flag& flag : kFlags) {
    std::string line = "  ";
    if (flag.letter < kStat) line += std::string("-") + static_cast<char>(flag.letter) + ",";
    line += std::string("--") + flag.name;
    if (flag.argument) line += std::string(" <") + flag.argument + ">";
    text += line + "\n        " + flag.help + "\n";
  }
  text +=
      "Environment: NCCL_TESTS_SPLIT (\"AND 0x7\", \"MOD 8\", ...) and NCCL_TESTS_SPLIT_MASK run in groups "
      "of ranks,\n"
      "NCCL_TESTS_DEVICE sets the first device, NCCL_TESTS_MIN_BW the average bus bandwidth below which the "
      "run fails.\n"
      "Exit status:\n"
      "  0  all results were right, and fast enough where NCCL_TESTS_MIN_BW is set\n"
      "  1  wrong results, too slow, or an error while running; the message names the rank\n"
      "  2  a wrong flag or environment variable; nothing was measured\n"
      "  3  operations did not end although their communicators were aborted\n";
  return text;
}

}  // namespace tutti::perf
