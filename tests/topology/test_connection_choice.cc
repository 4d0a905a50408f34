#include "topology/connection_choice.h"

#include <gmock/gmock.h>

#include "topology/machines.h"
#include "topology/topology_files.h"

namespace tutti {
namespace {

using test::graphOfFile;
using test::nodeOf;
using testing::HasSubstr;

TEST(ConnectionChoice, GpusReachEachOtherUpToTheLevel) {
  struct Row {
    const char* level;          // as the user writes it
    std::vector<PathType> may;  // of the paths that there are between GPUs
  };
  using enum PathType;
  const Row rows[] = {
      {"LOC", {}},
      {"0", {}},
      {"NVL", {loc, nvl}},
      {"nvl", {loc, nvl}},
      {"NVB", {loc, nvl, nvb}},
      {"PIX", {loc, nvl, nvb, pix}},
      {"1", {loc, nvl, nvb, pix}},
      {"PXB", {loc, nvl, nvb, pix, pxb}},
      {"2", {loc, nvl, nvb, pix, pxb}},
      {"PHB", {loc, nvl, nvb, pix, pxb, phb}},
      {"3", {loc, nvl, nvb, pix, pxb, phb}},
      {"SYS", {loc, nvl, nvb, pix, pxb, phb, sys}},
      {"4", {loc, nvl, nvb, pix, pxb, phb, sys}},
      {"5", {loc, nvl, nvb, pix, pxb, phb, sys}},
  };
  for (const Row& row : rows) {
    const auto level = parsePathLevel(row.level);
    ASSERT_TRUE(level.isOk()) << row.level;
    std::vector<PathType> may;
    for (const PathType between : {loc, nvl, nvb, pix, pxb, phb, sys, net, dis})
      if (mayReach(between, *level)) may.push_back(between);
    EXPECT_EQ(may, row.may) << row.level;
  }
}

TEST(ConnectionChoice, WhyGpusMayNotReachEachOtherIsSaid) {
  const Graph h100 = graphOfFile("oci-h100-full.xml");
  const Paths paths(h100);
  const NodeId first = nodeOf(h100, "GPU0"), last = nodeOf(h100, "GPU7");
  std::string why;
  EXPECT_TRUE(mayReach(h100, paths, first, last, std::nullopt, &why));
  EXPECT_TRUE(mayReach(h100, paths, first, last, PathType::nvl, &why));
  EXPECT_FALSE(mayReach(h100, paths, first, last, PathType::loc, &why));
  EXPECT_EQ(why, "NCCL_P2P_LEVEL=LOC");
  EXPECT_FALSE(mayReach(h100, paths, first, first, PathType::loc, &why));

  const Graph skeleton = graphOfFile("azure-ndv5.xml");  // without NVLinks
  const Paths overPci(skeleton);
  const NodeId here = skeleton.all(NodeType::gpu).front(), there = skeleton.all(NodeType::gpu).back();
  EXPECT_FALSE(mayReach(skeleton, overPci, here, there, std::nullopt, &why));
  EXPECT_EQ(why, "they are SYS apart, farther than the default of NCCL_P2P_LEVEL here, PXB");
  EXPECT_FALSE(mayReach(skeleton, overPci, here, there, PathType::phb, &why));
  EXPECT_EQ(why, "they are SYS apart, farther than NCCL_P2P_LEVEL=PHB");
  EXPECT_TRUE(mayReach(skeleton, overPci, here, there, PathType::sys, &why));
}

}  // namespace
}  // namespace tutti
