#include "topology/graph_xml.h"

#include <gmock/gmock.h>

#include <string>

#include "topology/machines.h"
#include "topology/topology_files.h"

namespace tutti {
namespace {

using test::graphOf;
using test::graphOfFile;
using testing::HasSubstr;

/// As NCCL writes it: two GPUs, one port; and graphs that only NCCL uses.
const char* const kDump = R"(<graphs version="1">
  <graph id="0" pattern="4" crossnic="0" nchannels="2" speedintra="20" speedinter="12.5" latencyinter="0.1" typeintra="NVL" typeinter="PIX" samechannels="0">
    <channel>
      <net dev="0"/>
      <gpu dev="0"/>
      <gpu dev="1"/>
      <net dev="0"/>
    </channel>
    <channel>
      <net dev="0"/>
      <gpu dev="1"/>
      <gpu dev="0"/>
      <net dev="0"/>
    </channel>
  </graph>
  <graph id="1" pattern="1" crossnic="0" nchannels="1" speedintra="40" speedinter="12.5" latencyinter="0" typeintra="NVL" typeinter="PIX" samechannels="1">
    <channel>
      <net dev="0"/>
      <gpu dev="0"/>
      <gpu dev="1"/>
      <net dev="0"/>
    </channel>
  </graph>
  <graph id="3" pattern="5" crossnic="0" nchannels="0" speedintra="0" speedinter="0" latencyinter="0" typeintra="DIS" typeinter="DIS" samechannels="1"/>
</graphs>
)";

struct Host {
  Host()
      : graph(graphOf(test::describe(
            test::nvlinkMachine(2, 80, {{0, 1, 4}}, 1, test::nicText(0, test::netText(0, 100)))))),
        paths(graph) {
    request.members = defaultMembers(graph);
    request.acrossHosts = true;
  }
  Graph graph;
  Paths paths;
  SearchRequest request;
};

std::vector<GraphDescription> parsed(const std::string& text) {
  auto graphs = parseGraphXml(text, "graph.xml");
  EXPECT_TRUE(graphs.isOk()) << graphs.status().message();
  return graphs.isOk() ? *graphs : std::vector<GraphDescription>{};
}

TEST(GraphXml, IsWrittenAsItWasRead) { EXPECT_EQ(graphXmlText(parsed(kDump)), kDump); }

TEST(GraphXml, BecomesAPlanWithTheFilesRates) {
  const Host host;
  ChannelPlan plan;
  const Status applied =
      applyGraphXml(parsed(kDump), "graph.xml", host.graph, host.paths, host.request, &plan);
  ASSERT_TRUE(applied.isOk()) << applied.message();
  ASSERT_EQ(plan.rings.channels.size(), 2u);
  EXPECT_EQ(plan.rings.channels[1].order, (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(host.graph.label(plan.rings.channels[1].netOut), "mlx5_0");
  EXPECT_EQ(plan.rings.intra, 20);
  EXPECT_EQ(plan.rings.inter, 12.5);
  EXPECT_EQ(plan.rings.typeInter, PathType::pix);
  EXPECT_FALSE(plan.rings.sameChannels);
  EXPECT_EQ(host.graph.label(plan.rings.bottleneck.to), "mlx5_0")
      << "what the file's channels do to the links";
  EXPECT_EQ(plan.trees.pattern, ChannelPattern::balancedTree);
  EXPECT_EQ(plan.trees.channels.size(), 1u);
}

TEST(GraphXml, APlanIsReadAgainAsTheSame) {
  for (const bool across : {false, true}) {
    const Graph graph = graphOfFile("oci-h100-full.xml");
    const Paths paths(graph);
    SearchRequest request;
    request.members = defaultMembers(graph);
    request.acrossHosts = across;
    const auto plan = searchChannels(graph, paths, request);
    ASSERT_TRUE(plan.isOk());
    const std::string text = graphXmlText(describePlan(graph, request, *plan));
    ChannelPlan again;
    ASSERT_TRUE(applyGraphXml(parsed(text), "", graph, paths, request, &again).isOk());
    for (const auto& [one, other] : {std::pair(&plan->rings, &again.rings), {&plan->trees, &again.trees}}) {
      EXPECT_EQ(one->channels, other->channels);
      EXPECT_EQ(one->pattern, other->pattern);
      EXPECT_EQ(one->total(), other->total());
      EXPECT_EQ(one->typeInter, other->typeInter);
    }
    EXPECT_EQ(graphXmlText(describePlan(graph, request, again)), text);
    EXPECT_EQ(text.find("<net dev=\"15\"/>") != std::string::npos, across);
  }
}

TEST(GraphXml, SkipsWhatNobodyKnowsAndTakesHexNumbers) {
  const auto graphs =
      parsed(R"(<!-- by hand --><graphs><note/><graph id="0" pattern="4" crossnic="1" nchannels="7"
    speedintra="1e1" speedinter=".5" typeintra="SYS" typeinter="PXN" samechannels="1" new="x">
    <channel><gpu dev="0x1" extra="1"/><switch/></channel></graph></graphs>)");
  ASSERT_EQ(graphs.size(), 1u);
  EXPECT_EQ(graphs[0].channels[0].gpus, (std::vector<uint64_t>{1}));
  EXPECT_EQ(graphs[0].speedIntra, 10);
  EXPECT_EQ(graphs[0].latencyInter, 0) << "may be missing";
  EXPECT_EQ(graphs[0].channels[0].line, 3);
}

TEST(GraphXml, ErrorsNameFileLineElementAndReason) {
  const auto refused = [](const std::string& text, const char* message) {
    const auto graphs = parseGraphXml(text, "g.xml");
    ASSERT_FALSE(graphs.isOk()) << text;
    EXPECT_THAT(graphs.status().message(), HasSubstr(message));
  };
  const auto changed = [](const std::string& from, const std::string& to) {
    std::string text = kDump;
    return text.replace(text.find(from), from.size(), to);
  };
  refused("", "g.xml:1: not XML");
  refused("<system/>", "g.xml:1: <system>: the outermost element must be <graphs>");
  refused("<graphs version=\"2\"/>", "only version 1 is known");
  refused("<graphs/><graphs/>", "one <graphs> is all that is read");
  refused("<graphs>x</graphs>", "text where only elements belong");
  refused(changed("id=\"0\" ", ""), "g.xml:2: <graphs> <graph>: attribute id is missing");
  refused(changed("pattern=\"4\"", "pattern=\"ring\""),
          "g.xml:2: <graphs> <graph id=\"0\">: attribute pattern=\"ring\" is not an integer");
  refused(changed("crossnic=\"0\"", "crossnic=\"3\""), "attribute crossnic=\"3\" is not in 0 .. 2");
  refused(changed("speedintra=\"20\"", "speedintra=\"fast\""),
          "attribute speedintra=\"fast\" is no number from 0 to 1e9");
  refused(changed("speedintra=\"20\"", "speedintra=\"-1\""), "is no number from 0");
  refused(changed("typeintra=\"NVL\"", "typeintra=\"nvl\""),
          "attribute typeintra=\"nvl\" is no path type such as NVL");
  refused(changed("<gpu dev=\"1\"/>", "<gpu/>"),
          "g.xml:6: <graphs> <graph id=\"0\"> <channel> <gpu>: attribute dev is missing");
  refused(changed("<gpu dev=\"1\"/>", "<gpu dev=\"x\"/>"), "attribute dev=\"x\" is not an integer");
  refused(changed("<gpu dev=\"1\"/>", "<net dev=\"1\"/>"),
          "g.xml:7: <graphs> <graph id=\"0\"> <channel> <net dev=\"0\">: a third <net>");
  EXPECT_THAT(readGraphXml("/no/such.xml").status().message(),
              HasSubstr("open graph file /no/such.xml: No such file"));
}

TEST(GraphXml, AFileForAnotherHostIsRefused) {
  const Host host;
  const auto refused = [&](const std::string& from, const std::string& to, const char* message) {
    std::string text = kDump;
    text.replace(text.find(from), from.size(), to);
    ChannelPlan plan;
    const Status status = applyGraphXml(parsed(text), "g.xml", host.graph, host.paths, host.request, &plan);
    ASSERT_FALSE(status.isOk()) << to;
    EXPECT_THAT(status.message(), HasSubstr(message));
  };
  refused("<gpu dev=\"1\"/>", "<gpu dev=\"2\"/>",
          "g.xml:3: <channel>: <gpu dev=\"2\"> is no rank of this host");
  refused("<gpu dev=\"1\"/>", "<gpu dev=\"0\"/>",
          "<gpu dev=\"0\"> is no rank of this host, or stands there before");
  refused("<gpu dev=\"1\"/>", "", "g.xml:3: <channel>: <gpu dev=\"1\"> is missing");
  refused("<net dev=\"0\"/>", "<net dev=\"5\"/>", "<net dev=\"5\"> is no port of this host");
  refused("pattern=\"4\"", "pattern=\"1\"",
          "g.xml:2: <graph id=\"0\">: attribute pattern=\"1\" is none of a ring");
  refused("pattern=\"1\"", "pattern=\"5\"", "pattern=\"5\" is none of a tree");
  refused(
      "<channel>\n      <net dev=\"0\"/>\n      <gpu dev=\"0\"/>\n      <gpu dev=\"1\"/>\n      <net "
      "dev=\"0\"/>\n    </channel>\n    <channel>",
      "<channel><gpu dev=\"0\"/><gpu dev=\"1\"/></channel><channel>", "g.xml:3: <channel>: no <net>");
  refused("id=\"3\" pattern=\"5\"", "id=\"0\" pattern=\"4\"", "0 channels; there must be 1 to 64");
}

}  // namespace
}  // namespace tutti
