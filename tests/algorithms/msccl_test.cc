// MSCCL algorithm files: read, translated, proved; bad ones refused with the place and the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <string>

#include "algorithms/msccl_import.h"
#include "support/files.h"

namespace tutti {
namespace {

using testing::HasSubstr;

std::string dataPath(const std::string& name) {
  const bool isExample = name.ends_with("_allreduce_4.xml") || name.ends_with("_allreduce_8.xml");
  return std::string(TUTTI_SOURCE_DIR) + (isExample ? "/examples/algorithms/" : "/tests/algorithms/data/") +
         name;
}

std::string readText(const std::string& name) { return test::contentOf(dataPath(name)); }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

void expectRefused(const std::string& text, const std::vector<std::string>& words) {
  const auto result = importMscclXml(text, "algo.xml");
  ASSERT_FALSE(result.isOk());
  EXPECT_EQ(result.status().code(), ncclInvalidUsage);
  for (const std::string& word : words) EXPECT_THAT(result.status().message(), HasSubstr(word));
}

TEST(Msccl, FilesAreProvedForCallsInAndOutOfPlace) {
  for (const char* name : {"allreduce_allpairs_4.xml", "allreduce_allpairs_8.xml", "allreduce_tworings_4.xml",
                           "allgather_doubling_4.xml", "reducescatter_halving_4.xml", "pairs_allreduce_4.xml",
                           "hosts_allreduce_8.xml"}) {
    const auto imported = importMscclXml(readText(name), name);
    ASSERT_TRUE(imported.isOk()) << imported.status().message();
    EXPECT_TRUE(imported->inPlace) << name;
    EXPECT_TRUE(imported->outOfPlace) << name;
    EXPECT_FALSE(imported->certificate.toText().empty());
    for (const CheckOptions& options : {CheckOptions{.fifoSlots = 2}, CheckOptions{.slices = 10}}) {
      const auto proof = prove(imported->schedules, options);
      EXPECT_TRUE(proof.isOk()) << proof.status().message();
    }
  }
}

TEST(Msccl, StepsBecomeTheStepsOfLanesWithFlagsForDependencies) {
  const auto imported = importMscclXml(readText("allreduce_allpairs_4.xml"), "allpairs");
  ASSERT_TRUE(imported.isOk()) << imported.status().message();
  EXPECT_EQ(imported->name, "allpairs4");
  EXPECT_EQ(imported->collective, Collective::allReduce);
  ASSERT_EQ(imported->schedules.size(), 4u);
  const Schedule& schedule = imported->schedules[1];
  EXPECT_EQ(schedule.lanes.size(), 4u);
  EXPECT_EQ(schedule.parts, 4);
  EXPECT_EQ(schedule.scratchSegments, 3);
  EXPECT_FALSE(schedule.sharedScratch);
  EXPECT_EQ(schedule.flags, 6);                // three lanes that receive, and back from the one that adds up
  EXPECT_EQ(imported->certificate.rounds, 4);  // message, flag, flag back, message
}

TEST(Msccl, ChannelsBecomePortsAndSizesAreKept) {
  const auto imported = importMscclXml(readText("allreduce_tworings_4.xml"), "tworings");
  ASSERT_TRUE(imported.isOk()) << imported.status().message();
  EXPECT_EQ(imported->maxBytes, 1048576u);
  EXPECT_EQ(imported->schedules[0].flags, 0);
  EXPECT_EQ(imported->schedules[0].lanes[1].blocks[0].steps[0].portTo, 1);
  EXPECT_DOUBLE_EQ(imported->certificate.sent, imported->certificate.sentBound);
}

TEST(Msccl, BrokenCopiesAreRefusedWithThePlaceAndTheReason) {
  const std::string good = readText("allreduce_tworings_4.xml");
  // rank 0 adds chunk 2 where chunk 3 has arrived
  expectRefused(
      replaced(good, "type=\"rrs\" srcbuf=\"i\" srcoff=\"3\"", "type=\"rrs\" srcbuf=\"i\" srcoff=\"2\""),
      {"algo.xml", "rank 0 of 4", "lane 0", "slice 0", "reduces segment"});
  expectRefused(replaced(good, "type=\"rrcs\"", "type=\"rcs\""), {"algo.xml"});
  expectRefused(replaced(good, "send=\"1\" recv=\"3\"", "send=\"2\" recv=\"3\""), {"algo.xml"});
  // All dependencies dropped: the sum may be taken before the contributions have come.
  std::string free = readText("allreduce_allpairs_4.xml");
  for (size_t at = 0; (at = free.find("depid=\"", at)) != std::string::npos; ++at)
    free.replace(at, free.find(" hasdep", at) - at, "depid=\"-1\" deps=\"-1\"");
  expectRefused(free, {"algo.xml"});
}

TEST(Msccl, EveryDroppedStepIsNoticed) {
  for (const char* name : {"allreduce_allpairs_4.xml", "allreduce_tworings_4.xml", "allgather_doubling_4.xml",
                           "reducescatter_halving_4.xml", "pairs_allreduce_4.xml", "hosts_allreduce_8.xml"}) {
    const auto program = parseMscclXml(readText(name), name);
    ASSERT_TRUE(program.isOk());
    for (size_t g = 0; g < program->gpus.size(); ++g)
      for (size_t b = 0; b < program->gpus[g].blocks.size(); ++b)
        for (size_t s = 0; s < program->gpus[g].blocks[b].steps.size(); ++s) {
          MscclProgram bad = *program;
          MscclStep& step = bad.gpus[g].blocks[b].steps[s];
          if (step.type == MscclStep::Type::nop) {
            step.dependsOnBlock = step.dependsOnStep = -1;
          } else {
            step.type = MscclStep::Type::nop;
          }
          EXPECT_FALSE(importMscclProgram(bad).isOk())
              << name << " gpu " << g << " tb " << b << " step " << s;
        }
  }
}

TEST(Msccl, EveryDroppedDependencyIsNoticed) {
  for (const char* name : {"allreduce_allpairs_4.xml", "allgather_doubling_4.xml",
                           "reducescatter_halving_4.xml", "pairs_allreduce_4.xml", "hosts_allreduce_8.xml"}) {
    const auto program = parseMscclXml(readText(name), name);
    ASSERT_TRUE(program.isOk());
    for (size_t g = 0; g < program->gpus.size(); ++g)
      for (size_t b = 0; b < program->gpus[g].blocks.size(); ++b)
        for (size_t s = 0; s < program->gpus[g].blocks[b].steps.size(); ++s) {
          if (program->gpus[g].blocks[b].steps[s].dependsOnBlock < 0) continue;
          MscclProgram bad = *program;
          bad.gpus[g].blocks[b].steps[s].dependsOnBlock = bad.gpus[g].blocks[b].steps[s].dependsOnStep = -1;
          EXPECT_FALSE(importMscclProgram(bad).isOk())
              << name << " gpu " << g << " tb " << b << " step " << s;
        }
  }
}

TEST(Msccl, ErrorsNameFileLineElementAttributeAndReason) {
  const std::string good = readText("allgather_doubling_4.xml");
  const auto bad = [&](const std::string& from, const std::string& to,
                       const std::vector<std::string>& words) {
    expectRefused(replaced(good, from, to), words);
  };
  bad("chan=\"0\"", "chan=\"7\"", {"algo.xml:4:", "<tb id=\"0\">", "chan=\"7\"", "not in 0 .. 5"});
  bad("send=\"1\"", "send=\"0\"", {"algo.xml:4:", "is the GPU itself"});
  bad("send=\"1\"", "send=\"4\"", {"not in -1 .. 3"});
  bad("send=\"1\"", "send=\"-1\"", {"<step s=\"1\">", "type s sends, but the thread block has no send peer"});
  bad("type=\"cpy\"", "type=\"copy\"",
      {"algo.xml:5:", "<gpu id=\"0\"> <tb id=\"0\"> <step s=\"0\">", "no step type"});
  bad("cnt=\"1\"", "cnt=\"x\"", {"cnt=\"x\" is not an integer"});
  bad("cnt=\"1\"", "cnt=\"99999999999999999999\"", {"is not in 1 .. 65536"});
  bad("cnt=\"1\"", "cnt=\"2\"", {"leaves buffer i of 1 chunks"});
  bad("cnt=\"1\"", "", {"attribute cnt is missing"});
  bad("srcbuf=\"i\"", "srcbuf=\"q\"", {"none of i, o, s"});
  bad("deps=\"2\"", "deps=\"3\"", {"depid=\"0\" deps=\"3\"", "no such step"});
  bad("deps=\"2\"", "deps=\"1\"", {"hasdep=\"0\""});
  bad("depid=\"0\"", "depid=\"1\"", {"run in order anyway"});
  bad("depid=\"0\"", "depid=\"5\"", {"no such thread block"});
  bad("deps=\"2\"", "deps=\"-1\"", {"must both be -1"});
  bad("<step s=\"1\"", "<step s=\"4\"", {"step 1 is due"});
  bad("tb id=\"1\"", "tb id=\"2\"", {"thread block 1 is due"});
  bad("gpu id=\"1\"", "gpu id=\"0\"", {"a second GPU 0"});
  bad("ngpus=\"4\"", "ngpus=\"2\"", {"more than 2 of them"});
  bad("ngpus=\"4\"", "ngpus=\"5\"", {"no multiple of ngpus"});
  bad("ngpus=\"4\"", "ngpus=\"100000\"", {"not in 1 .. 1024"});
  bad("i_chunks=\"1\"", "i_chunks=\"2\"", {"nchunksperloop=\"4\" makes it 1"});
  bad("coll=\"allgather\"", "coll=\"allsing\"", {"coll=\"allsing\" is none of"});
  bad("inplace=\"0\"", "inplace=\"0\" outofplace=\"0\"", {"for no call"});
  bad("hasdep=\"1\"", "hasdep=\"1\" colour=\"red\"", {"unknown attribute colour"});
  bad("<gpu id=\"2\"", "<cpu/><gpu id=\"2\"", {"<cpu>", "only <gpu> may stand here"});
  bad("</algo>", "", {"algo.xml", "not XML"});
  bad("</algo>", "</algo><algo/>", {"one <algo>"});
  expectRefused("", {"algo.xml:1: not XML"});
  expectRefused("<x/>", {"the outermost element must be <algo>"});
  expectRefused(std::string(kMscclMaxFileBytes + 1, ' '), {"at most"});
  EXPECT_THAT(readMscclXml("/nonexistent/a.xml").status().message(), HasSubstr("No such file"));
}

// Cheap stand-in for a fuzzer: every prefix, and every byte replaced, gives an answer.
TEST(Msccl, AnyBytesGiveAnAnswer) {
  const std::string good = readText("allgather_doubling_4.xml");
  for (size_t length = 0; length < good.size(); length += 7)
    EXPECT_FALSE(parseMscclXml(good.substr(0, length), "prefix").isOk());
  for (size_t at = 0; at < good.size(); at += 3)
    for (const char byte : {'\0', '<', '"', '9', '-', '\xff'}) {
      std::string text = good;
      text[at] = byte;
      if (const auto program = parseMscclXml(text, "byte"); program.isOk()) {
        EXPECT_EQ(program->ranks(), 4);
        importMscclProgram(*program).status().ignore();
      }
    }
  std::string deep = "<algo>";
  for (int i = 0; i < 100000; ++i) deep += "<gpu>";
  EXPECT_FALSE(parseMscclXml(deep, "deep").isOk());
}

}  // namespace
}  // namespace tutti
