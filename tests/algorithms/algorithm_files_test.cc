// Algorithms from files: read, proved, skipped, refused.
#include "algorithms/algorithm_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "algorithms/algorithm_json.h"
#include "algorithms/selector.h"
#include "support/files.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kExamples = std::string(TUTTI_SOURCE_DIR) + "/examples/algorithms";

std::string changed(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

std::string example(const std::string& name) { return test::contentOf(kExamples + "/" + name); }

AlgorithmTexts textsOf(std::vector<std::pair<std::string, std::string>> files) {
  AlgorithmTexts texts;
  for (auto& [path, text] : files) texts.files.push_back({path, text});
  return texts;
}

std::string refusal(const AlgorithmTexts& texts, int32_t ranks) {
  const auto loaded = LoadedAlgorithms::load(texts, ranks);
  EXPECT_FALSE(loaded.isOk());
  if (loaded.isOk()) return {};
  EXPECT_EQ(loaded.status().code(), ncclInvalidUsage) << loaded.status().message();
  return loaded.status().message();
}

std::vector<std::string> namesOf(const LoadedAlgorithms& loaded) {
  std::vector<std::string> names;
  for (const auto& one : loaded.all()) names.push_back(one->name);
  return names;
}

/// A selector of 4 ranks. (Choices point into it.)
std::shared_ptr<const Selector> chooserOf(const AlgorithmTexts& texts, const std::string& algo) {
  const auto loaded = LoadedAlgorithms::load(texts, 4);
  EXPECT_TRUE(loaded.isOk()) << loaded.status().message();
  auto candidates = (*loaded)->withShipped(1 << 20, 1 << 20);
  EXPECT_TRUE(candidates.isOk());
  SelectorSettings settings;
  settings.algo = algo;
  auto selector = Selector::create(std::move(candidates).value(), settings);
  EXPECT_TRUE(selector.isOk()) << selector.status().message();
  static std::vector<std::shared_ptr<const Selector>> kept;
  return kept.emplace_back(std::make_shared<const Selector>(std::move(selector).value()));
}

/// Blocks go out while others come in: in place that overwrites what has not been sent.
constexpr const char* kAllToAll = R"({"name": "Mine: x", "collective": "alltoall", "ranks": [3, 4],
  "programs": [{"ranks": "all", "lanes": [[
    {"do": "copy", "src": "input[rank]", "dst": "output[rank]"},
    {"repeat": "ranks-1", "steps": [
      {"do": "send", "src": "input[rank+1+i]", "to": "rank+1+i"},
      {"do": "recv", "from": "rank-1-i", "dst": "output[rank-1-i]"}]}]]}]})";

/// A folder that is removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = testing::TempDir() + "/tutti-algorithms-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string add(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
    return path_ + "/" + name;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(AlgorithmFiles, TheExamplesAreProvedForAllCalls) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kExamples)) {
    const auto imported = importAlgorithmFile(entry.path());
    ASSERT_TRUE(imported.isOk()) << imported.status().message();
    EXPECT_TRUE(imported->inPlace && imported->outOfPlace) << entry.path();
    EXPECT_EQ(imported->schedules.size(), imported->schedules[0].ranks);
    ++files;
  }
  EXPECT_EQ(files, 6);
  for (const char* name : {"ring_allreduce.json", "oneshot_allreduce.json", "chain_broadcast.json"})
    for (const int32_t ranks : {2, 3, 7, 16}) {
      const auto imported = importAlgorithmFile(kExamples + "/" + name, ranks, ranks / 2);
      EXPECT_TRUE(imported.isOk()) << imported.status().message();
    }
  const auto halving = importAlgorithmFile(kExamples + "/halving_allreduce_4.json");
  ASSERT_TRUE(halving.isOk());
  EXPECT_DOUBLE_EQ(halving->certificate.sent, halving->certificate.sentBound);
  EXPECT_EQ(halving->certificate.reductionOrder, "(0 + 2) + (1 + 3)");
}

TEST(AlgorithmFiles, BrokenCopiesAreRefusedWithRankLaneStepAndSegment) {
  const auto refused = [](const std::string& text, const std::vector<std::string>& words) {
    const auto imported = importAlgorithmText(text, "file");
    ASSERT_FALSE(imported.isOk());
    EXPECT_EQ(imported.status().code(), ncclInvalidUsage);
    for (const std::string& word : words) EXPECT_THAT(imported.status().message(), HasSubstr(word));
  };
  const std::string halving = example("halving_allreduce_4.json");
  // The wrong part is stored.
  refused(changed(halving, "\"dst\": \"output[rank xor 1]\"", "\"dst\": \"output[rank xor 2]\""),
          {"file: not a right AllReduce on 4 ranks: out of place: call 0", "my-halving", "rank ", " of 4",
           "lane 0", "slice 0", "\"recv "});
  refused(changed(halving, "\"dst\": \"output[rank]\", ", ""),
          {"file:20: programs[0].lanes[0][3]: \"dst\" is missing"});
}

TEST(AlgorithmFiles, BrokenCopiesOfTheXmlExamplesAreRefusedWithRankLaneStepAndSegment) {
  const auto refused = [](const std::string& text, const std::vector<std::string>& words) {
    const auto imported = importAlgorithmText(text, "file");
    ASSERT_FALSE(imported.isOk());
    for (const std::string& word : words) EXPECT_THAT(imported.status().message(), HasSubstr(word));
  };
  const std::string hosts = example("hosts_allreduce_8.xml");
  // Rank 0 sends chunk 2 where rank 1 takes chunk 1.
  refused(changed(hosts, "type=\"s\" srcbuf=\"i\" srcoff=\"1\"", "type=\"s\" srcbuf=\"i\" srcoff=\"2\""),
          {"file", "my-hosts", "rank 1 of 8", "lane 3", "slice 0", "reduces segment 1 with segment 2"});
  // The exchange between hosts goes to the wrong rank.
  refused(changed(hosts, "<tb id=\"3\" send=\"4\" recv=\"4\"", "<tb id=\"3\" send=\"5\" recv=\"4\""),
          {"file", "rank "});
  // A sum is sent before the third contribution is in it.
  refused(changed(hosts, "depid=\"2\" deps=\"1\"", "depid=\"-1\" deps=\"-1\""),
          {"file", "rank 0", "scratch[2]"});
  const std::string pairs = example("pairs_allreduce_4.xml");
  refused(changed(pairs, "type=\"re\" srcbuf=\"s\" srcoff=\"2\"", "type=\"re\" srcbuf=\"s\" srcoff=\"1\""),
          {"file", "rank 0"});
}

TEST(AlgorithmFiles, OnlyThoseForTheNumberOfRanksAreLoaded) {
  const auto texts = AlgorithmTexts::read(kExamples);
  ASSERT_TRUE(texts.isOk()) << texts.status().message();
  EXPECT_EQ(texts->files.size(), 6u);
  const auto names = [&](int32_t ranks) {
    const auto loaded = LoadedAlgorithms::load(*texts, ranks);
    EXPECT_TRUE(loaded.isOk()) << loaded.status().message();
    return namesOf(**loaded);
  };
  EXPECT_THAT(names(4), ElementsAre("my-chain", "my-halving", "my-oneshot", "my-pairs", "my-ring"));
  EXPECT_THAT(names(8), ElementsAre("my-chain", "my-hosts", "my-oneshot", "my-ring"));
  EXPECT_THAT(names(5), ElementsAre("my-chain", "my-oneshot", "my-ring"));
}

TEST(AlgorithmFiles, AreFoundByNameInAnyCase) {
  const auto texts = AlgorithmTexts::read(kExamples);
  ASSERT_TRUE(texts.isOk());
  const auto loaded = *LoadedAlgorithms::load(*texts, 4);
  ASSERT_NE(loaded->find("MY-Ring"), nullptr);
  EXPECT_EQ(loaded->find("MY-Ring")->collective, Collective::allReduce);
  EXPECT_EQ(loaded->find("ring"), nullptr);
}

TEST(AlgorithmFiles, AreChosenForCallsOfTheirSizes) {
  const auto chosen = [&](SelectorInput input, const std::string& algo = "") {
    input.ranks = 4;
    const auto choice = chooserOf(*AlgorithmTexts::read(kExamples), algo)->choose(input);
    return choice.isOk() ? choice->algorithm->name : choice.status().message();
  };
  // Several fit: the one with the least time.
  EXPECT_EQ(chosen({.bytes = 8, .allMapped = true}), "my-oneshot");
  EXPECT_EQ(chosen({.bytes = 65536, .allMapped = true}, "my-oneshot,ring"), "my-oneshot");
  EXPECT_EQ(chosen({.bytes = 65537, .allMapped = true}, "My-Oneshot,ring"), "ring");
  EXPECT_THAT(chosen({.bytes = 65537, .allMapped = true}, "my-oneshot"), HasSubstr("is not for 65537 bytes"));
  EXPECT_THAT(chosen({.bytes = 8, .hosts = 4}, "my-oneshot"), HasSubstr("needs all ranks on one host"));
  EXPECT_EQ(chosen({.bytes = 1048576, .hosts = 4}, "my-pairs,tree"), "my-pairs");
  EXPECT_EQ(chosen({.bytes = 1048577, .hosts = 4}, "my-pairs,tree"), "tree");
  EXPECT_EQ(chosen({.collective = Collective::broadcast, .bytes = 1048576, .hosts = 4, .root = 3}),
            "my-chain");
  EXPECT_NE(chosen({.collective = Collective::broadcast, .bytes = 1048575, .hosts = 4}), "my-chain");
  // Without being named, too, they go before what is predicted to be faster; unless the user excludes them.
  EXPECT_EQ(chosen({.bytes = 2000000, .hosts = 4}, "^my-halving"), "my-ring");
  EXPECT_EQ(chosen({.bytes = 2000000, .hosts = 4}, "tree"), "tree");
}

TEST(AlgorithmFiles, ForOneRootAreNotChosenForOthers) {
  const std::string text = changed(example("chain_broadcast.json"), "\"root\": \"any\"", "\"root\": 2");
  const auto selector = chooserOf(textsOf({{"chain", text}}), "broadcast:my-chain");
  SelectorInput input{
      .collective = Collective::broadcast, .ranks = 4, .bytes = 1 << 20, .hosts = 4, .root = 2};
  EXPECT_TRUE(selector->choose(input).isOk());
  input.root = 1;
  EXPECT_THAT(selector->choose(input).status().message(), HasSubstr("my-chain is not for root 1"));
  const std::string zero = changed(example("chain_broadcast.json"), "\"root\": \"any\"", "\"root\": 0");
  const auto first = chooserOf(textsOf({{"chain", zero}}), "broadcast:my-chain");
  EXPECT_FALSE(first->choose(input).isOk());
  input.root = 0;
  EXPECT_TRUE(first->choose(input).isOk());
}

TEST(AlgorithmFiles, ThatNeedMoreMemoryThanThereIsAreRefused) {
  const auto loaded = *LoadedAlgorithms::load(*AlgorithmTexts::read(kExamples), 4);
  EXPECT_TRUE(loaded->withShipped(128, 256).isOk());
  EXPECT_THAT(loaded->withShipped(128, 64).status().message(), HasSubstr("2 of scratch need more than"));
  EXPECT_FALSE(loaded->withShipped(64, 4096).isOk());
}

TEST(AlgorithmFiles, EveryRootIsProved) {
  const auto loaded = LoadedAlgorithms::load(textsOf({{"chain", example("chain_broadcast.json")}}), 5);
  ASSERT_TRUE(loaded.isOk()) << loaded.status().message();
  const LoadedAlgorithm& chain = *(*loaded)->find("my-chain");
  ASSERT_EQ(chain.byRoot.size(), 5u);
  for (int32_t root = 0; root < 5; ++root) {
    ASSERT_NE(chain.schedules(root), nullptr);
    EXPECT_EQ((*chain.schedules(root))[2].root, root);
  }
  EXPECT_EQ(chain.schedules(5), nullptr);
  // Right from root 0 and wrong from others.
  const std::string text = changed(example("chain_broadcast.json"), "\"ranks\": \"root\"", "\"ranks\": 0");
  EXPECT_THAT(refusal(textsOf({{"chain", changed(text, "\"ranks\": \"root-1\"", "\"ranks\": 4")}}), 5),
              HasSubstr("chain: not a right Broadcast on 5 ranks from root 1"));
  const auto fixed = LoadedAlgorithms::load(
      textsOf({{"chain", changed(example("chain_broadcast.json"), "\"root\": \"any\"", "\"root\": 2")}}), 5);
  ASSERT_TRUE(fixed.isOk());
  EXPECT_NE((*fixed)->all()[0]->schedules(2), nullptr);
  EXPECT_EQ((*fixed)->all()[0]->schedules(1), nullptr);
}

TEST(AlgorithmFiles, WhatIsRightForSomeCallsOnlyIsNeverChosenUnasked) {
  const auto loaded = LoadedAlgorithms::load(textsOf({{"a.json", kAllToAll}}), 4);
  ASSERT_TRUE(loaded.isOk()) << loaded.status().message();
  const LoadedAlgorithm* one = (*loaded)->find("mine__x");
  ASSERT_NE(one, nullptr);
  EXPECT_TRUE(one->outOfPlace);
  EXPECT_FALSE(one->inPlace);
  const SelectorInput input{.collective = Collective::allToAll, .ranks = 4, .bytes = 4000, .hosts = 4};
  for (const char* algo : {"", "^ring", "alltoall:^spread", "mine__x"})  // the last is not meant for alltoall
    EXPECT_NE(chooserOf(textsOf({{"a.json", kAllToAll}}), algo)->choose(input)->algorithm->name, "mine__x")
        << algo;
  const auto named = chooserOf(textsOf({{"a.json", kAllToAll}}), "alltoall:Mine__X,spread")->choose(input);
  ASSERT_TRUE(named.isOk());
  EXPECT_EQ(named->algorithm->name, "mine__x");
  // A promise must hold.
  EXPECT_THAT(
      refusal(
          textsOf({{"b.json", changed(kAllToAll, "\"ranks\": [3, 4]", "\"ranks\": 4, \"inPlace\": true")}}),
          4),
      HasSubstr("b.json: not a right AlltoAll on 4 ranks: in place: "));
  const auto narrow = importAlgorithmText(
      changed(example("ring_allreduce.json"), "\"ranks\": \"any\"", "\"ranks\": 4, \"outOfPlace\": false"),
      "c");
  ASSERT_TRUE(narrow.isOk());
  EXPECT_TRUE(narrow->inPlace);
  EXPECT_FALSE(narrow->outOfPlace);
}

TEST(AlgorithmFiles, NamesAreUnique) {
  const std::string ring = example("ring_allreduce.json");
  EXPECT_THAT(refusal(textsOf({{"a", ring}, {"b", changed(ring, "my-ring", "MY-RING")}}), 4),
              HasSubstr("b: the name my-ring belongs to the algorithm of a"));
  for (const char* name : {"ring", "Tree", "NVLSTree", "hierarchical"})
    EXPECT_THAT(refusal(textsOf({{"a", changed(ring, "my-ring", name)}}), 4), HasSubstr("shipped algorithm"));
}

TEST(AlgorithmFiles, AreProvedOnceAProcess) {
  const AlgorithmTexts texts =
      textsOf({{"once", changed(example("ring_allreduce.json"), "my-ring", "once")}});
  const uint64_t before = algorithmFilesProved();
  const auto first = LoadedAlgorithms::load(texts, 6);
  ASSERT_TRUE(first.isOk());
  for (int i = 0; i < 5; ++i) {
    const auto again = LoadedAlgorithms::load(texts, 6);
    ASSERT_TRUE(again.isOk());
    EXPECT_EQ((*again)->find("once"), (*first)->find("once"));
  }
  EXPECT_EQ(algorithmFilesProved(), before + 1);
  EXPECT_TRUE(LoadedAlgorithms::load(texts, 7).isOk());
  EXPECT_EQ(algorithmFilesProved(), before + 2);
  // The same path with another content.
  EXPECT_THAT(refusal(textsOf({{"once", "{"}}), 6), HasSubstr("once:1"));
  EXPECT_EQ(algorithmFilesProved(), before + 3);
}

TEST(AlgorithmFiles, DigestsTellContentsAndTheirOrderApart) {
  const std::string a = textsOf({{"x", "1"}, {"y", "2"}}).digest();
  EXPECT_EQ(a, textsOf({{"z", "1"}, {"w", "2"}}).digest());
  EXPECT_NE(a, textsOf({{"x", "2"}, {"y", "1"}}).digest());
  EXPECT_NE(a, textsOf({{"x", "12"}}).digest());
  EXPECT_NE(a, textsOf({{"x", "1"}}).digest());
  EXPECT_THAT(a, HasSubstr("2 file(s), "));
}

TEST(AlgorithmFiles, OfAFolderAreReadInTheOrderOfTheirNames) {
  const Folder folder;
  folder.add("b.json", "B");
  folder.add("a.XML", "A");
  folder.add("readme.md", "no");
  const Folder empty;
  const std::string other = empty.add("zz", "Z");
  const auto good = AlgorithmTexts::read(" " + other + " , ,, " + folder.path() + ",");
  ASSERT_TRUE(good.isOk()) << good.status().message();
  ASSERT_EQ(good->files.size(), 3u);
  EXPECT_EQ(good->files[0].text, "Z");
  EXPECT_EQ(good->files[1].text, "A");
  EXPECT_EQ(good->files[2].text, "B");
  EXPECT_THAT(AlgorithmTexts::read("/nonexistent/a.json").status().message(),
              testing::AllOf(HasSubstr("/nonexistent/a.json"), HasSubstr("No such file")));
  EXPECT_TRUE(AlgorithmTexts::read("")->files.empty());
  EXPECT_THAT(importAlgorithmFile("/nonexistent/a.json").status().message(), HasSubstr("No such file"));
}

TEST(AlgorithmFiles, NumbersInFilesCannotMakeProofsLarge) {
  std::string xml =
      "<algo name=\"big\" proto=\"Simple\" nchannels=\"1\" nchunksperloop=\"65536\" ngpus=\"4\" "
      "coll=\"allreduce\" inplace=\"0\">";
  for (int gpu = 0; gpu < 4; ++gpu)
    xml += "<gpu id=\"" + std::to_string(gpu) +
           "\" i_chunks=\"65536\" o_chunks=\"65536\" s_chunks=\"65536\"></gpu>";
  const auto cells = importAlgorithmText(xml + "</algo>", "big.xml");
  ASSERT_FALSE(cells.isOk());
  EXPECT_THAT(cells.status().message(), HasSubstr("big.xml: 786432 segments in the buffers"));
  const std::string step =
      "type=\"cpy\" srcbuf=\"i\" srcoff=\"0\" dstbuf=\"o\" dstoff=\"0\" cnt=\"16000\" depid=\"-1\" "
      "deps=\"-1\" hasdep=\"0\"/>";
  std::string moves =
      "<algo name=\"big\" proto=\"Simple\" nchannels=\"1\" nchunksperloop=\"16000\" ngpus=\"1\" "
      "coll=\"allreduce\" inplace=\"0\"><gpu id=\"0\" i_chunks=\"16000\" o_chunks=\"16000\" "
      "s_chunks=\"0\"><tb id=\"0\" send=\"-1\" recv=\"-1\" chan=\"0\">";
  for (int s = 0; s < 100; ++s) moves += "<step s=\"" + std::to_string(s) + "\" " + step;
  EXPECT_THAT(importAlgorithmText(moves + "</tb></gpu></algo>", "big.xml").status().message(),
              HasSubstr("big.xml: 1600000 moves of segments"));
  EXPECT_THAT(refusal(textsOf({{"ring", example("ring_allreduce.json")}}), 1000), HasSubstr("can be proved"));
  const std::string teams = changed(example("oneshot_allreduce.json"), "[\"all\"]",
                                    "[\"all\", \"all\", \"all\", \"all\", \"all\"]");
  EXPECT_THAT(refusal(textsOf({{"teams", teams}}), 300), HasSubstr("teams of all ranks"));
}

}  // namespace
}  // namespace tutti
