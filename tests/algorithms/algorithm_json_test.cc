// Algorithms as JSON: written and read back, proved, refused with the place and the reason.
#include "algorithms/algorithm_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "algorithms/expression.h"
#include "algorithms/registry.h"
#include "support/files.h"

namespace tutti {
namespace {

using testing::HasSubstr;

std::string exampleText(const std::string& name) {
  return test::contentOf(std::string(TUTTI_SOURCE_DIR) + "/examples/algorithms/" + name);
}

std::string withText(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

Result<ScheduleSet> schedulesOf(const std::string& text, int32_t ranks, int32_t root = 0) {
  TUTTI_ASSIGN(const JsonAlgorithm algorithm, JsonAlgorithm::parse(text, "a.json"));
  return algorithm.schedules(ranks, root);
}

std::string refusal(const std::string& text, int32_t ranks = 4, int32_t root = 0) {
  const auto result = schedulesOf(text, ranks, root);
  EXPECT_FALSE(result.isOk()) << text;
  EXPECT_EQ(result.status().code(), ncclInvalidUsage);
  return result.status().message();
}

/// The schedule with the fields that a kind of step does not use as they are when nobody sets them.
Schedule withoutUnused(Schedule schedule) {
  for (Lane& lane : schedule.lanes)
    for (Block& block : lane.blocks)
      for (Step& step : block.steps) {
        if (!readsSource(step.kind)) step.src = {};
        if (step.kind == StepKind::recvSend) step.dst = {Buffer::input, 0, step.dst.count};
        if (step.kind != StepKind::recvSend && !writesDestination(step.kind)) step.dst = {};
        const bool isWait = step.kind == StepKind::wait && step.team < 0;
        const bool isSignal = step.kind == StepKind::signal && step.team < 0;
        if (!receives(step.kind) && !isWait) step.peerFrom = 0, step.portFrom = 0;
        if (!sends(step.kind) && !isSignal) step.peerTo = 0, step.portTo = 0;
      }
  return schedule;
}

/// What differs, where something does.
std::string difference(const ScheduleSet& a, const ScheduleSet& b) {
  if (a.size() != b.size()) return "sizes";
  for (size_t r = 0; r < a.size(); ++r) {
    const Schedule x = withoutUnused(a[r]);
    const Schedule y = withoutUnused(b[r]);
    const bool same = x.name == y.name && x.collective == y.collective && x.ranks == y.ranks &&
                      x.rank == y.rank && x.root == y.root && x.parts == y.parts &&
                      x.maxCount == y.maxCount && x.scratchSegments == y.scratchSegments &&
                      x.sharedScratch == y.sharedScratch && x.sharedUserBuffers == y.sharedUserBuffers &&
                      x.flags == y.flags && x.teams == y.teams && x.lanes == y.lanes;
    if (!same) return toText(x) + "\nis not\n" + toText(y);
  }
  return {};
}

void expectRoundTrip(const ScheduleSet& set) {
  const std::string text = toJson(set);
  const auto back = schedulesOf(text, set[0].ranks, set[0].root);
  ASSERT_TRUE(back.isOk()) << back.status().message() << "\n" << text;
  EXPECT_EQ(difference(set, *back), "") << text;
}

TEST(AlgorithmJson, EveryShippedAlgorithmReadsBackAsItWasWritten) {
  int written = 0;
  for (const Algorithm& algorithm : algorithms())
    for (const Collective collective : algorithm.collectives)
      for (const int32_t ranks : {1, 2, 3, 4, 5, 8, 12, 13}) {
        if (!algorithm.implements(collective, ranks)) continue;
        // Of the many that are made of two others one number of ranks will do.
        if (!algorithm.intra.empty() && ranks != 5) continue;
        for (const int32_t root : {0, ranks / 2, ranks - 1}) {
          ScheduleRequest request;
          request.collective = collective;
          request.ranks = ranks;
          request.root = hasRoot(collective) ? root : 0;
          if (algorithm.medium == Medium::hosts) {
            request.hosts.resize(2);
            for (int32_t rank = 0; rank < ranks; ++rank)
              request.hosts[ranks > 1 && rank > ranks / 3 ? 1 : 0].push_back(rank);
            if (ranks == 1) request.hosts.pop_back();
          }
          for (const bool mapped : {false, true}) {
            request.mapped = mapped;
            const auto set = generateAll(algorithm.name, request);
            ASSERT_TRUE(set.isOk()) << set.status().message();
            expectRoundTrip(*set);
            ++written;
          }
        }
      }
  EXPECT_GT(written, 300);
}

TEST(AlgorithmJson, ARingIsWrittenAsOneProgramForAllRanks) {
  ScheduleRequest request;
  request.ranks = 6;
  const auto set = generateAll("ring", request);
  ASSERT_TRUE(set.isOk());
  const std::string text = toJson(*set, 8, 4096);
  EXPECT_THAT(text, HasSubstr("\"ranks\": \"all\""));
  EXPECT_THAT(text, HasSubstr(R"("src": "input[rank-2-i]", "to": "rank+1")"));
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 30);
  const auto read = JsonAlgorithm::parse(text, "ring.json");
  ASSERT_TRUE(read.isOk()) << read.status().message();
  EXPECT_EQ(read->head().minBytes, 8u);
  EXPECT_EQ(read->head().maxBytes, 4096u);
  EXPECT_EQ(read->head().ranks, std::vector<int32_t>{6});
}

TEST(AlgorithmJson, TheRingOfTheExampleIsTheShippedOneForEveryNumberOfRanks) {
  const std::string text = exampleText("ring_allreduce.json");
  for (const int32_t ranks : {2, 3, 4, 5, 8, 17}) {
    const auto set = schedulesOf(text, ranks);
    ASSERT_TRUE(set.isOk()) << set.status().message();
    ScheduleRequest request;
    request.ranks = ranks;
    auto shipped = generateAll("ring", request);
    ASSERT_TRUE(shipped.isOk());
    for (Schedule& schedule : *shipped) schedule.name = "my-ring";
    if (ranks > 2) {
      EXPECT_EQ(difference(*set, *shipped), "");
    }
    EXPECT_TRUE(prove(*set).isOk()) << ranks;
  }
}

TEST(AlgorithmJson, AlsoFieldsThatNoShippedAlgorithmUsesAreKept) {
  Schedule one;
  one.name = "odd \"name\"\n";
  one.collective = Collective::broadcast;
  one.ranks = 3;
  one.root = 1;
  one.parts = 7;
  one.maxCount = 9;
  one.scratchSegments = 5;
  one.sharedScratch = true;
  one.flags = 3;
  one.teams = {{2, 0}, {1}};
  Lane& lane = one.lanes.emplace_back();
  const Location spread{Buffer::output, Affine(1, 2, 7), 3, kSelf, {2, 3}};
  lane.recvReduceCopySend(2, {Buffer::input, Affine(-3, 1, 5)}, spread, Affine(1, 1, 3), 4, 5).messageFirst =
      true;
  lane.loop(1).recvSend(1, Affine(1, 0, 2), 4, 1, 2);  // a constant with a modulus
  lane.loop(4).copy({Buffer::scratch, Affine(2, 3, 0)}, {Buffer::scratch, 4, 1, Affine(0, 1, 3)});
  lane.blocks.back().steps.back().sizeAs = Affine(6, -1, 7);
  lane.blocks.back().steps.back().sizePattern = {1, -2};
  lane.loop(2).reduceTeam(0, {Buffer::scratch, 0}, {Buffer::output, 6}, 1).finalize = true;
  lane.loop(1).signalTeam(1, 1);
  lane.loop(1).wait(Affine(0, 2, 3), 2);
  ScheduleSet set(3, one);
  for (int32_t rank = 0; rank < 3; ++rank) set[static_cast<size_t>(rank)].rank = rank;
  expectRoundTrip(set);
  set[1].sharedUserBuffers = true;
  set[1].flags = 5;
  set[2].lanes.clear();
  set[2].flags = 0;
  expectRoundTrip(set);
}

TEST(AlgorithmJson, ExpressionsAreWhatTheySay) {
  const ExpressionNames names{.ranks = 8, .rank = 5, .root = 2, .iteration = true};
  const auto is = [&](const char* text, int64_t base, int64_t stride = 0, int64_t modulus = 0) {
    const auto value = evaluate(text, names);
    ASSERT_TRUE(value.isOk()) << text << ": " << value.status().message();
    EXPECT_EQ(value->base, base) << text;
    EXPECT_EQ(value->stride, stride) << text;
    EXPECT_EQ(value->modulus, modulus) << text;
  };
  is("7", 7);
  is(" rank - 2 - i ", 3, -1);
  is("-rank+ranks*2", 11);
  is("2*(rank-i)*3", 30, -6);
  is("rank xor 4", 1);
  is("rank xor 2 xor 1", 6);
  is("rank/4*4 + (rank+1) mod 4", 2);  // mod binds last: (4 + 6) mod 4
  is("rank/4*4 + ((rank+1) mod 4)", 6);
  is("(rank - root - 4) mod ranks", 7);
  is("-1/2", 0);  // -(1/2)
  is("(0-3)/2", -2);
  is("3-i mod 4", 3, -1, 4);
  is("-1-2*i mod 4", -1, -2, 4);
  is("i", 0, 1);
}

TEST(AlgorithmJson, BadExpressionsAreRefusedWithTheReason) {
  const ExpressionNames names{.ranks = 8, .rank = 5};
  const ExpressionNames loop{.ranks = 8, .rank = 5, .root = 0, .iteration = true};
  const auto why = [](const std::string& text, const ExpressionNames& known) {
    const auto value = evaluate(text, known);
    EXPECT_FALSE(value.isOk()) << text;
    return value.isOk() ? std::string() : value.status().message();
  };
  EXPECT_THAT(why("", names), HasSubstr("empty"));
  EXPECT_THAT(why("rank+", names), HasSubstr("missing behind \"rank+\""));
  EXPECT_THAT(why("rank 1", names), HasSubstr("\"1\" does not belong behind \"rank \""));
  EXPECT_THAT(why("rnak", names), HasSubstr("\"rnak\" is unknown"));
  EXPECT_THAT(why("i", names), HasSubstr("only inside \"repeat\""));
  EXPECT_THAT(why("root", names), HasSubstr("root is not known here"));
  EXPECT_THAT(why("(rank", names), HasSubstr("a ) is missing"));
  EXPECT_THAT(why("#", names), HasSubstr("neither a number nor a name"));
  EXPECT_THAT(why("1 mod 0", names), HasSubstr("at least 1"));
  EXPECT_THAT(why("1/0", names), HasSubstr("at least 1"));
  EXPECT_THAT(why("99999999999999999999", names), HasSubstr("beyond"));
  EXPECT_THAT(why("1000000000*1000000000*1000000000", names), HasSubstr("beyond"));
  EXPECT_THAT(why("i*i", loop), HasSubstr("i times i"));
  EXPECT_THAT(why("i/2", loop), HasSubstr("quotient"));
  EXPECT_THAT(why("i xor 1", loop), HasSubstr("depends on i"));
  EXPECT_THAT(why("1 mod i", loop), HasSubstr("must not depend on i"));
  EXPECT_THAT(why("(i mod 4) + 1", loop), HasSubstr("taken last"));
  EXPECT_THAT(why("i mod 4 mod 2", loop), HasSubstr("taken last"));
  EXPECT_THAT(why("-1 xor 1", names), HasSubstr("negative"));
  EXPECT_THAT(why(std::string(20, '(') + "1" + std::string(20, ')'), names), HasSubstr("deep"));
  EXPECT_THAT(why(std::string(300, '1'), names), HasSubstr("300 characters"));
}

TEST(AlgorithmJson, RefusalsNameFileLinePathAndReason) {
  const std::string good = exampleText("ring_allreduce.json");
  const auto bad = [&](const std::string& from, const std::string& to, const std::vector<std::string>& words,
                       int32_t ranks = 4) {
    const std::string message = refusal(withText(good, from, to), ranks);
    for (const std::string& word : words) EXPECT_THAT(message, HasSubstr(word));
  };
  bad("\"do\": \"send\"", "\"do\": \"sned\"",
      {"a.json:11: programs[0].lanes[0][0].do: must be send, recv", "not \"sned\""});
  bad("\"from\": \"rank-1\", \"src\": \"input[rank-2-i]\"",
      "\"from\": \"rank-q\", \"src\": \"input[rank-2-i]\"",
      {"a.json:13: programs[0].lanes[0][1].steps[0].from: \"rank-q\": \"q\" is unknown"});
  bad("input[rank-1]", "input[rank-1-i]", {"lanes[0][0].src", "i stands only inside"});
  bad("input[rank-1]", "inputs[rank-1]",
      {"lanes[0][0].src: must be input[...], output[...] or scratch[...]"});
  bad("input[rank-1]", "input[rank-1", {"must be input[...]"});
  bad("input[rank-1]", "input[4]", {"\"4\" is 4: there are 4 segments"});
  bad("input[rank-1]", "input[-1]", {"\"-1\" is -1"});
  bad("input[rank-1]", "scratch[0]", {"there are no segments of scratch"});
  bad("\"to\": \"rank+1\"", "\"to\": 4", {"lanes[0][0].to: 4: there are 4 ranks"});
  bad("\"to\": \"rank+1\"", "\"to\": 1.5", {"must be a number or an expression, not 1.5"});
  bad("\"to\": \"rank+1\"", "\"too\": \"rank+1\"",
      {"lanes[0][0]: \"too\" means nothing here; known are do, "});
  bad("\"to\": \"rank+1\"", "\"to\": \"rank+1\", \"toPort\": 6", {"toPort: 6 is not in 0 .. 5"});
  bad("\"to\": \"rank+1\"", "\"to\": \"rank+1\", \"team\": 0", {"team: this program has no teams"});
  bad(", \"to\": \"rank+1\"}", "}", {"lanes[0][0]: \"to\" is missing"});
  bad("\"finalize\": true", "\"finalize\": 1", {"finalize: must be true or false, not 1"});
  bad("\"repeat\": \"ranks-2\"", "\"repeat\": \"ranks*100000000\"", {"repeat: ", "not in"});
  bad("\"repeat\": \"ranks-2\"", "\"repeat\": 1000000", {"moves of segments or more"});
  bad("\"parts\": \"ranks\"", "\"parts\": 0", {"a.json:7: parts: 0 is not in 1 .. 65536"});
  bad("\"parts\": \"ranks\"", "\"parts\": \"rank\"", {"rank is not known here"});
  bad("\"parts\": \"ranks\"", "\"parts\": 65536", {"segments in the buffers of all ranks"}, 16);
  bad("\"ranks\": \"any\"", "\"ranks\": [3, 5]", {"not for 4 ranks"});
  bad("\"ranks\": \"any\"", "\"ranks\": 0", {"ranks: 0 is not in 1 .. 1024"});
  bad("\"ranks\": \"any\"", "\"ranks\": []", {"for no number of ranks"});
  bad("\"ranks\": \"any\"", "\"ranks\": \"all\"", {"must be a number, several numbers, or \"any\""});
  bad("\"ranks\": \"all\"", "\"ranks\": [0, 1, 2]", {"programs: there is none for rank 3 of 4"});
  bad("\"ranks\": \"all\"", "\"ranks\": [0, 0]", {"programs[0].ranks[1]: a second program for rank 0"});
  bad("\"ranks\": \"all\"", "\"ranks\": 9", {"programs[0].ranks: 9: there are 4 ranks"});
  bad("\"collective\": \"allreduce\"", "\"collective\": \"allsing\"",
      {"collective: must be one of ", "allreduce", "allsing"});
  bad("\"collective\": \"allreduce\"", "\"collective\": \"allreduce\", \"root\": 0",
      {"root: allreduce has no root"});
  bad("\"name\": \"my-ring\",", "", {"a.json:3: \"name\" is missing"});
  bad("\"name\": \"my-ring\"", "\"name\": \"\"", {"1 .. 100 characters"});
  bad("\"name\"", "\"nmae\": 1, \"name\"", {"a.json:4: \"nmae\" means nothing here"});
  bad("\"name\"", "\"ranks\": 1, \"name\"", {"a.json:6: \"ranks\" stands twice"});
  bad("\"name\"", "\"inPlace\": false, \"outOfPlace\": false, \"name\"", {"for no call"});
  bad("\"name\"", "\"minBytes\": 9, \"maxBytes\": 8, \"name\"", {"minBytes 9 is above maxBytes 8"});
  bad("\"name\"", "\"maxBytes\": -1, \"name\"", {"maxBytes: -1 is not in"});
  bad("\"name\"", "\"maxBytes\": 99999999999999999999, \"name\"", {"maxBytes: must be a whole number"});
  bad("\"name\"", "\"maxBytes\": 9999999999999999999, \"name\"", {"too large"});
}

TEST(AlgorithmJson, WhatIsNotJsonIsRefusedWithItsLine) {
  EXPECT_THAT(refusal(""), HasSubstr("a.json:1: not JSON: "));
  EXPECT_THAT(refusal("{\n\n  \"name\": nope}"), HasSubstr("a.json:3: not JSON: "));
  EXPECT_THAT(refusal("[1]"), HasSubstr("a.json:1: must be an object, not an array"));
  EXPECT_THAT(refusal("{} {}"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(std::string("{}\n\0", 4)), HasSubstr("a.json:2: not JSON: a byte 0"));
  EXPECT_THAT(refusal("{\"a\": \"\xff\"}"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("{\"a\": 1e999}"), HasSubstr("a.json:1: not JSON"));
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("nested more than 16 deep"));
  EXPECT_THAT(refusal(std::string(kAlgorithmJsonMaxBytes + 1, ' ')), HasSubstr("at most"));
  std::string many = "[0";
  for (int i = 0; i < 300000; ++i) many += ",0";
  EXPECT_THAT(refusal(many + "]"), HasSubstr("values"));
  std::string members = "{\"a\":0";
  for (int i = 0; i < 100; ++i) members += ",\"k" + std::to_string(i) + "\":0";
  EXPECT_THAT(refusal(members + "}"), HasSubstr("members"));
}

// Numbers stand at the ends of lines, where the parser has read the line's end before it gives them.
TEST(AlgorithmJson, LinesAreRight) {
  const auto document =
      JsonDocument::parse("{\n\"a\": 1\n,\n\"b\":\n2, \"c\": [\n\n3\n], // d\n\"d\": true\n}", "f", {});
  ASSERT_TRUE(document.isOk()) << document.status().message();
  const JsonElement root = document->root();
  EXPECT_EQ(root.line(), 1);
  EXPECT_EQ(root.member("a")->line(), 2);
  EXPECT_EQ(root.member("b")->line(), 5);
  EXPECT_EQ(root.member("c")->line(), 5);
  EXPECT_EQ(root.member("c")->value().children[0].line, 7);
  EXPECT_EQ(root.member("d")->line(), 9);
}

// Cheap stand-in for the fuzzer: every prefix, and many replaced bytes, give an answer.
TEST(AlgorithmJson, AnyBytesGiveAnAnswer) {
  const std::string good = exampleText("ring_allreduce.json");
  const size_t end = good.rfind('}');
  for (size_t length = 0; length <= end; length += 5)
    EXPECT_FALSE(JsonAlgorithm::parse(good.substr(0, length), "prefix").isOk());
  for (size_t at = 0; at < good.size(); at += 2)
    for (const char byte : {'\0', '"', '9', '-', '[', '\xff'}) {
      std::string text = good;
      text[at] = byte;
      const auto set = schedulesOf(text, 3);
      if (set.isOk()) {
        prove(*set).status().ignore();
      } else {
        EXPECT_THAT(set.status().message(), HasSubstr("a.json"));
      }
    }
}

}  // namespace
}  // namespace tutti
