// gpu-report: what it makes of the folder that scripts/gpu-check-run.sh fills.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gpu_check/report.h"

namespace tutti::gpu_check {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

/// A folder as the script leaves it, removed at the end.
class Folder {
 public:
  Folder() : path_(testing::TempDir() + "/tutti-gpu-report-" + std::to_string(::getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_ + "/runs");
    write("machine.txt", "started=today\nseconds=1.50\nstopped=\n");
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
  }

  /// `facts`: more lines of run.txt.
  void run(const std::string& facts, const std::string& output = "", const std::string& perf = "") {
    const std::string name = "runs/" + std::to_string(1000 + ++runs_);
    std::filesystem::create_directories(path_ + "/" + name);
    write(name + "/run.txt", "title=all_reduce\nranks=2\nlimit=25.00\nseconds=0.50\ncommand=x\n" + facts);
    write(name + "/output.txt", output);
    if (!perf.empty()) write(name + "/perf.json", perf);
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int runs_ = 0;
};

std::string perfOf(double microseconds, int wrong,
                   const std::string& devices = R"([{"device":0},{"device":0}])") {
  const std::string place = R"({"time":)" + std::to_string(microseconds) +
                            R"(,"alg_bw":1,"bus_bw":1,"nwrong":)" + std::to_string(wrong) +
                            R"(,"algorithm":"ring","protocol":"ll","channels":1})";
  return R"({"devices":)" + devices +
         R"(,"results":[{"size":1024,"count":256,"type":"float","out_of_place":)" + place +
         R"(,"in_place":null},{"size":0,"count":0,"type":"float","out_of_place":)" + place +
         R"(,"in_place":null}],"out_of_bounds":{"count":)" + std::to_string(wrong) + R"(,"okay":)" +
         (wrong == 0 ? "true" : "false") + R"(},"errors":[]})";
}

const char* const kBaseline =
    R"({"devices":[],"launch_us":2,"launch_and_wait_us":5,"peer_copies":[],"copies":[
  {"bytes":8,"memcpy_us":3,"memcpy_gbps":0.1,"kernel_us":4,"kernel_gbps":0.1},
  {"bytes":1024,"memcpy_us":8,"memcpy_gbps":1,"kernel_us":6,"kernel_gbps":2}]})";

std::string verdictOf(const Json& report, size_t run) { return report["suite"]["runs"][run]["verdict"]; }

TEST(GpuReport, JudgesARunByItsStatusAndItsResults) {
  Folder folder;
  folder.run("step=suite\nstatus=0\nperf=1\n", "", perfOf(1, 0));
  folder.run("step=suite\nstatus=0\nperf=1\n", "", perfOf(1, 3));
  folder.run("step=suite\nstatus=0\nperf=1\n");
  folder.run("step=suite\nstatus=139\nperf=1\n", "some line\nall_reduce_perf: rank 0: broke\nand more\n");
  folder.run("step=suite\nstatus=2\nperf=1\nmay_refuse=1\n", "all_reduce_perf: no such algorithm here\n");
  folder.run("step=suite\nstatus=2\nperf=1\nmay_refuse=0\n", "all_reduce_perf: no such flag\n");
  folder.run("step=suite\nstatus=timeout\nperf=1\n", "was at 8 bytes\n");
  folder.run("step=suite\nstatus=skipped\nwhy=no time was left\n");
  const Json report = makeReport(folder.path());
  const char* expected[] = {"right",     "wrong", "wrong",       "wrong",
                            "not there", "wrong", "did not end", "skipped"};
  for (size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(verdictOf(report, i), expected[i]) << i;
  EXPECT_EQ(report["suite"]["runs"][3]["why"], "status 139: all_reduce_perf: rank 0: broke");
  EXPECT_THAT(report["suite"]["runs"][6].value("why", ""),
              HasSubstr("not done after 25.00 s: was at 8 bytes"));
  EXPECT_EQ(report["suite"]["counts"]["wrong"], 4);
  EXPECT_EQ(report["problems"].size(), 5u);  // the four, and the one without an end
  EXPECT_FALSE(isRight(report));
}

TEST(GpuReport, IsRightWhenSomethingRanAndNothingWasWrong) {
  Folder folder;
  EXPECT_FALSE(isRight(makeReport(folder.path()))) << "nothing ran";
  folder.run("step=suite\nstatus=0\nperf=1\n", "", perfOf(1, 0));
  folder.run("step=nccl\nstatus=1\nperf=1\n", "all_reduce_perf: duplicate GPU\n");
  folder.run("step=sanitizer\nstatus=timeout\nperf=1\n");
  EXPECT_TRUE(isRight(makeReport(folder.path()))) << "NCCL's failures and a slow sanitizer are not ours";
  folder.run("step=sanitizer\nstatus=9\nperf=1\n", "an error was found\n");
  EXPECT_FALSE(isRight(makeReport(folder.path())));
}

TEST(GpuReport, AnEndBeforeTimeIsAProblem) {
  Folder folder;
  folder.run("step=suite\nstatus=0\nperf=1\n", "", perfOf(1, 0));
  folder.write("machine.txt", "stopped=it was interrupted\n");
  EXPECT_THAT(makeReport(folder.path())["problems"], Contains("it was interrupted"));
}

TEST(GpuReport, TheTableHasTheCopyTheBoundAndNccl) {
  Folder folder;
  folder.write("baseline.json", kBaseline);
  folder.run("step=table\nstatus=0\nperf=1\n", "", perfOf(10, 0));
  folder.run("step=nccl\nstatus=0\nperf=1\n", "", perfOf(7, 0));
  const Json report = makeReport(folder.path());
  ASSERT_EQ(report["table"]["rows"].size(), 1u) << "without the row of no bytes";
  const Json& row = report["table"]["rows"][0];
  EXPECT_EQ(row["copy_us"], 6);
  EXPECT_EQ(row["nccl_us"], 7);
  // Two ranks read and write 1024 bytes each, at 2 GB/s of copying; a launch takes 2 us.
  EXPECT_NEAR(row["bound_us"].get<double>(), 2 + 2 * 1024 / 2e3, 1e-9);
  EXPECT_EQ(row["out_of_place"]["algorithm"], "ring");
  EXPECT_THAT(describe(report), HasSubstr("| 1 KiB | 6.00 | 10.0 (1.00) 30 %, NCCL 7.00 |"));
}

TEST(GpuReport, RanksOnSeveralDevicesHaveNoBound) {
  Folder folder;
  folder.write("baseline.json", kBaseline);
  folder.run("step=table\nstatus=0\nperf=1\n", "", perfOf(10, 0, R"([{"device":0},{"device":1}])"));
  const Json report = makeReport(folder.path());
  EXPECT_TRUE(report["table"]["rows"][0]["bound_us"].is_null());
  EXPECT_TRUE(report["table"]["rows"][0]["nccl_us"].is_null());
}

TEST(GpuReport, SaysWhatWasLeftOut) {
  Folder folder;
  folder.run("step=suite\nstatus=0\nperf=1\n", "# f8e4m3 sum: left out, the library does not support it: x\n",
             perfOf(1, 0));
  const Json report = makeReport(folder.path());
  EXPECT_THAT(report["suite"]["runs"][0]["left_out"],
              Contains("f8e4m3 sum: left out, the library does not support it: x"));
  EXPECT_THAT(describe(report), HasSubstr("f8e4m3 sum: left out"));
}

TEST(GpuReport, FilesThatWereCutOffAreNoResults) {
  Folder folder;
  folder.write("baseline.json", "{\"devices\":[");
  folder.run("step=suite\nstatus=0\nperf=1\n", "", perfOf(1, 0).substr(0, 60));
  const Json report = makeReport(folder.path());
  EXPECT_TRUE(report["baseline"]["measured"].is_null());
  EXPECT_EQ(verdictOf(report, 0), "wrong");
  EXPECT_THAT(describe(report), Not(HasSubstr("Floor and ceiling")));
}

TEST(LeastTraffic, CountsEachBufferOnce) {
  EXPECT_EQ(leastTraffic("all_reduce", 4, 100), 800);
  EXPECT_EQ(leastTraffic("alltoall", 4, 100), 800);
  EXPECT_EQ(leastTraffic("all_gather", 4, 100), 500);
  EXPECT_EQ(leastTraffic("reduce_scatter", 4, 100), 500);
  EXPECT_EQ(leastTraffic("broadcast", 4, 100), 500);
  EXPECT_EQ(leastTraffic("hypercube", 4, 100), 0);
}

}  // namespace
}  // namespace tutti::gpu_check
