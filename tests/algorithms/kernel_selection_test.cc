// The choice where calls are run by kernels: algorithm, protocol and channels together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "algorithms/selector.h"

namespace tutti {
namespace {

using testing::HasSubstr;

Result<Selector> onGpus(const std::string& algo = "", const std::string& proto = "", bool wholeLines = true) {
  SelectorSettings settings;
  settings.algo = algo;
  settings.proto = proto;
  settings.kernels = KernelMachine{.bandwidth = 360e9, .wholeLines = wholeLines};
  return Selector::create(CandidateSet::sharedShipped(), settings);
}

SelectorInput call(size_t bytes, Collective collective = Collective::allReduce, int32_t ranks = 8) {
  return {.collective = collective, .ranks = ranks, .bytes = bytes, .allMapped = true, .maxChannels = 16};
}

/// "ring ll128 4", or the error.
std::string chosen(const Result<Selector>& selector, const SelectorInput& input) {
  if (!selector.isOk()) return selector.status().message();
  const auto choice = selector->choose(input);
  if (!choice.isOk()) return choice.status().message();
  return choice->algorithm->name + " " + name(choice->protocol);
}

int channels(const Result<Selector>& selector, const SelectorInput& input) {
  return selector->choose(input)->channels;
}

TEST(KernelSelection, PricesProtocols) {
  EXPECT_EQ(chosen(onGpus("ring"), call(8)), "ring ll");
  EXPECT_EQ(chosen(onGpus("ring"), call(8 << 20)), "ring ll128");
  EXPECT_EQ(chosen(onGpus("ring"), call(size_t{1} << 30)), "ring simple");
  EXPECT_EQ(chosen(onGpus("ring", "", false), call(8 << 20)), "ring simple");
}

TEST(KernelSelection, TakesMoreChannelsForMoreBytes) {
  EXPECT_EQ(channels(onGpus("ring"), call(8)), 1);
  EXPECT_EQ(channels(onGpus("ring"), call(size_t{1} << 30)), 16);
}

TEST(KernelSelection, HonoursNcclProto) {
  EXPECT_EQ(chosen(onGpus("ring", "LL128"), call(8)), "ring ll128");
  EXPECT_EQ(chosen(onGpus("tree", "Simple"), call(8)), "tree simple");
  EXPECT_EQ(chosen(onGpus("ring", "^LL,LL128"), call(8)), "ring simple");
  EXPECT_THAT(chosen(onGpus("", "LL128", false), call(8)),
              HasSubstr("leaves no protocol for AllReduce: there is only simple and ll on GPUs here"));
}

TEST(KernelSelection, AlgorithmsInSharedMemoryHaveNoProtocolButSimple) {
  EXPECT_EQ(chosen(onGpus("oneshot"), call(8)), "oneshot simple");
  EXPECT_THAT(chosen(onGpus("oneshot", "LL"), call(8)),
              HasSubstr("oneshot does not have the protocol on GPUs here"));
  const std::string any = chosen(onGpus("", "LL"), call(8));
  EXPECT_TRUE(any.ends_with(" ll")) << any;
}

TEST(KernelSelection, ARankAloneNeedsNoProtocol) {
  EXPECT_TRUE(onGpus("oneshot", "LL")->choose(call(8, Collective::allReduce, 1)).isOk());
}

}  // namespace
}  // namespace tutti
