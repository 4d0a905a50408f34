#include "common/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tutti::perf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ParseResult parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "all_reduce_perf");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  return parseOptions(static_cast<int>(arguments.size()), pointers.data());
}

Options parsed(std::vector<std::string> arguments) {
  const ParseResult result = parse(std::move(arguments));
  EXPECT_EQ(result.action, ParseResult::Action::run) << result.message;
  return result.options;
}

std::string refused(std::vector<std::string> arguments) {
  const ParseResult result = parse(std::move(arguments));
  EXPECT_EQ(result.action, ParseResult::Action::fail);
  return result.message;
}

TEST(Options, DefaultsAreThoseOfNcclTests) {
  const Options options = parsed({});
  EXPECT_EQ(options.threads, 1);
  EXPECT_EQ(options.devicesPerThread, 1);
  EXPECT_EQ(options.minBytes, 32u << 20);
  EXPECT_EQ(options.maxBytes, 32u << 20);
  EXPECT_EQ(options.stepBytes, 1u << 20);
  EXPECT_EQ(options.iterations, 20);
  EXPECT_EQ(options.warmup, 1);
  EXPECT_EQ(options.check, 1);
  EXPECT_EQ(options.average, Average::mean);
  EXPECT_STREQ(options.types[0]->name, "float");
  EXPECT_THAT(options.operators, ElementsAre(Operator::sum));
  EXPECT_THAT(options.sizes(), ElementsAre(32u << 20));
}

TEST(Options, ShortAndLongFormsMeanTheSame) {
  const Options a =
      parsed({"-b", "8",  "-e", "128M", "-f", "2",  "-g",     "4",  "-t",  "2",  "-n",   "5",  "-w",
              "3",  "-m", "2",  "-N",   "0",  "-p", "1",      "-c", "2",   "-z", "3",    "-y", "1",
              "-T", "9",  "-C", "1",    "-a", "3",  "-R",     "2",  "-I",  "1",  "-K",   "1",  "-u",
              "3",  "-S", "1",  "-M",   "1",  "-J", "x.json", "-o", "avg", "-d", "half", "-r", "1"});
  const Options b = parsed({"--minbytes",
                            "8",
                            "--maxbytes=128M",
                            "--stepfactor",
                            "2",
                            "--ngpus",
                            "4",
                            "--nthreads",
                            "2",
                            "--iters",
                            "5",
                            "--warmup_iters",
                            "3",
                            "--agg_iters",
                            "2",
                            "--run_cycles",
                            "0",
                            "--parallel_init",
                            "1",
                            "--check",
                            "2",
                            "--blocking",
                            "3",
                            "--stream_null",
                            "1",
                            "--timeout",
                            "9",
                            "--report_cputime",
                            "1",
                            "--average",
                            "3",
                            "--local_register",
                            "2",
                            "--per_iter_timing",
                            "1",
                            "--per_iter_skip",
                            "1",
                            "--unalign",
                            "3",
                            "--report_timestamps",
                            "1",
                            "--memory",
                            "1",
                            "--output_file",
                            "x.json",
                            "--op",
                            "avg",
                            "--datatype",
                            "half",
                            "--root",
                            "1"});
  for (const Options& options : {a, b}) {
    EXPECT_EQ(options.minBytes, 8u);
    EXPECT_EQ(options.maxBytes, 128u << 20);
    EXPECT_EQ(options.stepFactor, 2u);
    EXPECT_EQ(options.devicesPerThread, 4);
    EXPECT_EQ(options.threads, 2);
    EXPECT_EQ(options.iterations, 5);
    EXPECT_EQ(options.warmup, 3);
    EXPECT_EQ(options.aggregated, 2);
    EXPECT_EQ(options.cycles, 0);
    EXPECT_TRUE(options.parallelInit);
    EXPECT_EQ(options.check, 2);
    EXPECT_EQ(options.blocking, Blocking::waitAndBarrierOuter);
    EXPECT_TRUE(options.nullStream);
    EXPECT_EQ(options.timeoutSeconds, 9);
    EXPECT_TRUE(options.cpuTime);
    EXPECT_EQ(options.average, Average::max);
    EXPECT_EQ(options.localRegister, 2);
    EXPECT_TRUE(options.perIteration);
    EXPECT_EQ(options.perIterationSkip, 1);
    EXPECT_EQ(options.misalign, 3);
    EXPECT_TRUE(options.timestamps);
    EXPECT_TRUE(options.memoryReport);
    EXPECT_EQ(options.jsonFile, "x.json");
    EXPECT_THAT(options.operators, ElementsAre(Operator::avg));
    EXPECT_STREQ(options.types[0]->name, "half");
    EXPECT_EQ(options.root, 1);
    EXPECT_EQ(options.sizes().size(), 25u);
  }
}

TEST(Options, AllExpands) {
  const Options options = parsed({"-o", "all", "-d", "all", "-r", "all"});
  EXPECT_EQ(options.operators.size(), 6u);
  EXPECT_EQ(options.types.size(), 12u);
  EXPECT_TRUE(options.allRoots);
}

TEST(Options, SizesStepByFactorOrBytes) {
  EXPECT_THAT(parsed({"-b", "8", "-e", "70", "-f", "2"}).sizes(), ElementsAre(8u, 16u, 32u, 64u));
  EXPECT_THAT(parsed({"-b", "8", "-e", "30", "-i", "10"}).sizes(), ElementsAre(8u, 18u, 28u));
  EXPECT_THAT(parsed({"-b", "0", "-e", "0"}).sizes(), ElementsAre(0u));
  EXPECT_THAT(parsed({"-b", "16777215T", "-e", "16777215T"}).sizes().size(), 1u)
      << "no endless loop at the end of the range";
}

TEST(Options, WrongOnesAreNamed) {
  EXPECT_THAT(refused({"-Q", "1"}), HasSubstr("-Q"));
  EXPECT_THAT(refused({"--frobnicate", "1"}), HasSubstr("--frobnicate"));
  EXPECT_THAT(refused({"-b"}), HasSubstr("needs an argument"));
  EXPECT_THAT(refused({"-b", "lots"}), HasSubstr("--minbytes lots"));
  EXPECT_THAT(refused({"-n", "0"}), HasSubstr("--iters 0"));
  EXPECT_THAT(refused({"-n", "1x"}), HasSubstr("--iters 1x"));
  EXPECT_THAT(refused({"-g", "-1"}), HasSubstr("--ngpus -1"));
  EXPECT_THAT(refused({"-o", "xor"}), HasSubstr("--op xor"));
  EXPECT_THAT(refused({"-d", "float128"}), HasSubstr("--datatype float128"));
  EXPECT_THAT(refused({"-z", "4"}), HasSubstr("from 0 to 3"));
  EXPECT_THAT(refused({"-J", "x.csv"}), HasSubstr(".json"));
  EXPECT_THAT(refused({"--stat", "mode"}), HasSubstr("median"));
  EXPECT_THAT(refused({"8"}), HasSubstr("unexpected argument 8"));
}

TEST(Options, ContradictionsAreNamed) {
  EXPECT_THAT(refused({"-b", "64", "-e", "8"}), HasSubstr("--maxbytes 8"));
  EXPECT_THAT(refused({"-b", "0", "-e", "8", "-f", "2"}), HasSubstr("--minbytes 0"));
  EXPECT_THAT(refused({"-b", "1", "-e", "8", "-i", "0"}), HasSubstr("--stepbytes 0"));
  EXPECT_EQ(parse({"-G", "2", "-m", "3"}).options.graphLaunches, 2);
  EXPECT_THAT(refused({"-G", "2", "-z", "1"}), HasSubstr("--blocking"));
  EXPECT_THAT(refused({"-G", "2", "-y", "1"}), HasSubstr("--stream_null"));
  EXPECT_THAT(refused({"-G", "2", "-I", "1"}), HasSubstr("--per_iter_timing"));
  EXPECT_THAT(refused({"-G", "2", "--stat", "min"}), HasSubstr("--stat"));
  EXPECT_THAT(refused({"-I", "1", "-n", "3", "-K", "3"}), HasSubstr("--per_iter_skip"));
}

TEST(Options, OfNcclTestsThatHaveNoMeaningHereAreTakenOrSaidSo) {
  EXPECT_EQ(parse({"-x", "2", "-V", "32", "-D", "0"}).action, ParseResult::Action::run);
  const ParseResult device = parse({"-D", "3"});
  EXPECT_EQ(device.action, ParseResult::Action::fail);
  EXPECT_NE(device.message.find("--device_implementation 3: expected 0: kernels"), std::string::npos)
      << device.message;
  EXPECT_EQ(parse({"-x", "3"}).action, ParseResult::Action::fail);
}

TEST(Options, HelpNamesEveryFlag) {
  EXPECT_EQ(parse({"-h"}).action, ParseResult::Action::help);
  EXPECT_EQ(parse({"--help"}).action, ParseResult::Action::help);
  EXPECT_EQ(parse({"--version"}).action, ParseResult::Action::version);
  const std::string text = usage("all_reduce_perf");
  for (const char* name :
       {"minbytes", "maxbytes", "stepfactor", "stat", "output_file", "unalign", "cudagraph"})
    EXPECT_THAT(text, HasSubstr(std::string("--") + name));
}

}  // namespace
}  // namespace tutti::perf
