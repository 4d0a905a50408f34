#include "topology/host_plan.h"

#include <gmock/gmock.h>

#include <string>

#include "topology/machines.h"
#include "topology/topology_files.h"

namespace tutti {
namespace {

using test::graphOf;
using testing::HasSubstr;

HostPlan planOf(const Graph& graph, bool acrossHosts, int32_t firstRank = 0, PathOptions options = {}) {
  SearchRequest request;
  request.members = defaultMembers(graph);
  request.acrossHosts = acrossHosts;
  const auto plan = searchChannels(graph, Paths(graph, options), request);
  EXPECT_TRUE(plan.isOk()) << plan.status().message();
  std::vector<int32_t> ranks;
  for (size_t i = 0; i < request.members.size(); ++i) ranks.push_back(firstRank + static_cast<int32_t>(i));
  const auto summary = summarise(graph, request, *plan, ranks);
  EXPECT_TRUE(summary.isOk()) << summary.status().message();
  return *summary;
}

TEST(HostPlan, IsDecodedAsItWas) {
  for (const bool across : {false, true})
    for (const std::string& xml :
         {systemXmlText(*readSystemXml(test::topologyFile("oci-h100-full.xml"))),
          test::pcieMachine(test::nicText(0, test::netText(0, 100)), test::nicText(1, test::netText(1, 100))),
          test::nvlinkMachine(8, 70, test::cubeMesh()), test::nvlinkMachine(1, 80, {}, 1),
          test::rackDomain(20)}) {
      const HostPlan plan = planOf(graphOf(test::describe(xml)), across, 9992);
      const auto decoded = decodeHostPlan(encodeHostPlan(plan));
      ASSERT_TRUE(decoded.isOk()) << decoded.status().message();
      EXPECT_EQ(*decoded, plan);
    }
}

TEST(HostPlan, HasRailsAndRatesOfTheSearch) {
  const HostPlan plan = planOf(test::graphOfFile("oci-h100-full.xml"), true);
  ASSERT_EQ(plan.rings.channels.size(), 16u);
  EXPECT_EQ(plan.rings.channels[1].railIn, 2) << "the first port of the second card";
  EXPECT_EQ(plan.rings.channels[1].railOut, 2);
  EXPECT_EQ(plan.rings.channels[1].order, (std::vector<uint16_t>{1, 2, 3, 4, 5, 6, 7, 0}));
  EXPECT_EQ(plan.rings.inter, 22500u);
  EXPECT_EQ(plan.rings.rate(), 22500u);
  EXPECT_EQ(plan.rings.typeInter, PathType::pxn);
}

TEST(HostPlan, IsSmall) {
  const size_t h100 = encodeHostPlan(planOf(test::graphOfFile("oci-h100-full.xml"), true, 9992)).size();
  EXPECT_LE(h100, 8 * 24u) << "23 bytes a rank: 230 KB for 10,000";
  EXPECT_LE(encodeHostPlan(planOf(graphOf(test::describe(test::rackDomain(36))), true)).size(), 36 * 11u);
}

TEST(HostPlan, BytesThatAreWrongAreRefusedWithTheReason) {
  const std::string good =
      encodeHostPlan(planOf(graphOf(test::describe(test::nvlinkMachine(
                                2, 80, {{0, 1, 4}}, 1, test::nicText(0, test::netText(0, 100))))),
                            true));
  const auto refused = [&](size_t at, std::string_view part, const char* message) {
    std::string bytes = good;
    bytes.replace(at, part.size(), part);
    const auto decoded = decodeHostPlan(bytes);
    ASSERT_FALSE(decoded.isOk()) << message;
    EXPECT_THAT(decoded.status().message(), HasSubstr(message));
  };
  // version, u16 count, 2 ranks; pattern, types, u32 intra, u32 inter, channels, orders; order 0 1; order,
  // first, in, out
  ASSERT_TRUE(decodeHostPlan(good).isOk());
  refused(0, {"\x02", 1}, "has version 2; 1 is known");
  refused(1, {"\x00", 1}, "has 0 ranks");
  refused(2, {"\x09", 1}, "has 2306 ranks");
  refused(4, {"\x80\x00", 2}, "a number is cut off or too long");
  refused(3, "\xff\xff\xff\xff\x0f", "has rank 4294967295");
  refused(3, "\xff\xff\xff\xff\x1f", "a number is cut off or too long");
  refused(5, {"\x01", 1}, "rings of a host's plan: 1 is none of their patterns");
  refused(6, {"\x0c", 1}, "12 and 8 are no path types");
  refused(12, {"\0\0", 2}, "channel 0 has rails 0 and 0 at 0 MB/s");
  refused(16, {"\x00", 1}, "0 channels with 1 orders");
  refused(16, {"\x41", 1}, "65 channels with 1 orders");
  refused(17, {"\x02", 1}, "channels with 2 orders");
  refused(18, {"\x01", 1}, "order 0 does not begin at member 0");
  refused(19, {"\x00", 1}, "order 0 has member 0 twice, or there is none");
  refused(20, {"\x01", 1}, "channel 0 has order 1 from member 0");
  refused(21, {"\x02", 1}, "channel 0 has order 0 from member 2");
  refused(22, {"\xff", 1}, "channel 0 has rails 255 and 0");
  EXPECT_THAT(decodeHostPlan(good + "x").status().message(), HasSubstr("1 bytes after"));
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(decodeHostPlan(good.substr(0, size)).isOk()) << size;
  // Two rings with an order each: the first channel must have the first one.
  std::string two = encodeHostPlan(
      planOf(graphOf(test::describe(test::nvlinkMachine(4, 80, {{0, 2, 4}, {1, 3, 4}}, 1))), false));
  ASSERT_EQ(two.substr(18, 2), std::string("\2\2", 2));
  two.at(28) = 1;
  EXPECT_THAT(decodeHostPlan(two).status().message(), HasSubstr("channel 0 has order 1 from member 0"));
  EXPECT_THAT(summarise(*Graph::build({}), {}, {}, {1}).status().message(),
              HasSubstr("1 ranks for 0 members"));
}

}  // namespace
}  // namespace tutti
