#include "algorithms/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "algorithms/cost_forms.h"
#include "topology/cluster_plan.h"

namespace tutti {
namespace {

using FormOf = CostForm (*)(const FormInput& in);
constexpr std::array<std::pair<std::string_view, FormOf>, 15> kForms = {{
    {"ring", ringForm},
    {"tree", treeForm},
    {"doubling", doublingForm},
    {"rabenseifner", rabenseifnerForm},
    {"circulant", circulantForm},
    {"pat", patForm},
    {"binomial", binomialForm},
    {"scatter_allgather", scatterAllGatherForm},
    {"spread", spreadForm},
    {"pairwise", pairwiseForm},
    {"bruck", bruckForm},
    {"hierarchical", hierarchicalForm},
    {"oneshot", oneShotForm},
    {"twoshot", twoShotForm},
    {"direct", directForm},
}};
constexpr std::string_view kPairPrefix = "hierarchical/";

double slicesOf(const CostForm& form, const CostQuery& query, size_t sliceBytes) {
  const double largest = form.largest * static_cast<double>(query.bytes) / std::max(1, query.channels);
  return std::max(1.0,
                  std::ceil(largest / static_cast<double>(std::max<size_t>(1, sliceBytes)) * (1 - 1e-12)));
}

/// Each slice goes through all rounds, and all of a channel's slices through one lane; channels run side by
/// side.
double secondsOf(const CostForm& form, const CostQuery& query, const TwoLevelCosts& costs) {
  const CostParameters& in = costs.inside;
  const CostParameters& out = costs.between;
  const double p = query.ranks;
  const auto n = static_cast<double>(query.bytes);
  const double gamma = isReduction(query.collective) ? in.gamma : 0;
  const double memory = form.traffic * n * in.hostByte;
  if (form.barriers > 0) {
    const double barrier = in.signal + (p - 2) * in.perPeer;
    return costs.call + form.fixed + (form.barriers + form.negotiations) * barrier +
           std::max(form.own * n * in.coreByte, memory);
  }
  const double slices = slicesOf(form, query, in.sliceBytes);
  const double roundsInside = form.rounds - form.roundsBetween;
  const bool rooted = hasRoot(query.collective);
  const double first = (rooted ? in.rooted : 1) * roundsInside * in.alpha +
                       (rooted ? out.rooted : 1) * form.roundsBetween * out.alpha;
  if (form.stages > 0) {
    const double host = form.hostSent * n / slices * out.beta;
    const double stage = first / form.rounds + std::max(n / slices * form.perStage * (in.beta + gamma), host);
    const double further = costs.asynchronous ? stage - first / form.rounds : stage;
    return costs.call + std::max(form.stages * stage + (slices - 1) * further, memory);
  }
  const double further = roundsInside * in.sliceAlpha + form.roundsBetween * out.sliceAlpha;
  const double links = std::max(form.serial * n * in.beta + form.reduced * n * gamma,
                                form.hostSent * n * out.beta + form.reduced * n * gamma);
  return costs.call + form.fixed + first + (slices - 1) * further +
         (form.extraMessages - form.extraBetween) * (rooted ? in.rooted : 1) * in.perPeer +
         form.extraBetween * (rooted ? out.rooted : 1) * out.perPeer + std::max(links, memory);
}

int32_t blocksOf(const CostQuery& query, const TwoLevelCosts& costs) {
  if (!pipelinesBlocks(query.algorithm, query.collective)) return 1;
  if (query.blocks > 0) return query.blocks;
  int32_t best = 1;
  double least = std::numeric_limits<double>::infinity();
  for (int32_t blocks = 1; blocks <= kMostBlocks; ++blocks) {
    const double seconds = secondsOf(costForm(query, blocks), query, costs);
    if (seconds >= least) continue;
    least = seconds;
    best = blocks;
  }
  return best;
}

/// One kind of message for all: no host's link counts apart.
TwoLevelCosts oneLevel(const CostParameters& costs, int32_t channels) {
  const CostParameters ofAll = forChannels(costs, channels);
  TwoLevelCosts both{ofAll, ofAll};
  both.between.beta = 0;
  return both;
}

}  // namespace

CostParameters forChannels(CostParameters costs, int32_t channels) {
  const double further = std::max(0, channels - 1) * costs.perChannel;
  costs.alpha += further;
  if (costs.sliceAlpha > 0) costs.sliceAlpha += further;
  costs.beta = std::max(costs.beta, costs.streamByte / std::max(1, channels));
  costs.perChannel = costs.streamByte = 0;
  return costs;
}

CostParameters crowded(CostParameters costs) {
  // The further flags of a barrier are mostly there when the first is.
  constexpr double kOfFurtherFlags = 0.25;
  costs.alpha += costs.switching;
  costs.signal += costs.switching;
  costs.perPeer += kOfFurtherFlags * costs.switching;
  costs.switching = 0;
  return costs;
}

CostParameters sharedMemoryCosts() {
  CostParameters costs;
  costs.alpha = 0.5e-6;
  costs.beta = 1 / 6e9;
  costs.gamma = 1 / 20e9;
  costs.signal = 0.25e-6;
  costs.perPeer = 0.12e-6;
  costs.coreByte = 1 / 30e9;
  costs.hostByte = 1 / 36e9;
  costs.switching = 5.5e-6;
  costs.rooted = 0.35;
  return costs;
}

CostParameters tcpCosts(double linkBandwidth) {
  CostParameters costs;
  costs.alpha = 30e-6;
  costs.beta = 1 / (linkBandwidth > 0 ? linkBandwidth : 1.25e9);
  costs.gamma = 1 / 20e9;
  costs.perPeer = 12e-6;
  costs.switching = 60e-6;
  // One stream is without data while its rank waits for a slice of another (docs/transports.md). And one TCP
  // connection moves about 3 GB/s, however fast the link is.
  costs.streamByte = std::max(1.4 * costs.beta, 1 / 3e9);
  costs.perChannel = 25e-6;
  return costs;
}

TwoLevelCosts gpuCosts(double insideBandwidth, double hostBandwidth) {
  TwoLevelCosts costs;
  costs.call = 8.4e-6;
  costs.asynchronous = true;
  costs.inside.alpha = costs.inside.sliceAlpha = 3.4e-6;
  costs.inside.beta = insideBandwidth > 0 ? 1 / insideBandwidth : 0;
  costs.inside.sliceBytes = 2 << 20;
  costs.between = costs.inside;
  costs.between.alpha = costs.between.sliceAlpha = 14e-6;
  costs.between.beta = hostBandwidth > 0 ? 1 / hostBandwidth : 0;
  return costs;
}

TwoLevelCosts gpuCosts(const ClusterPlan& plan) {
  constexpr double kGiga = 1e9;
  return gpuCosts(static_cast<double>(plan.ringRate()) * plan.channels() * kGiga,
                  plan.hosts() > 1 ? static_cast<double>(plan.linkRate()) * kGiga : 0);
}

TwoLevelCosts kernelCosts(const KernelMachine& machine, Protocol protocol, int32_t channels) {
  // Launch and hop, seconds (NCCL's tuning model for rings inside a host), and the payload of what a link
  // carries.
  struct Times {
    double call, hop, payload, sliceBytes;
  };
  constexpr std::array<Times, 3> kTimes = {
      {{8.4e-6, 3.4e-6, 1, 512 << 10}, {6.6e-6, 0.6e-6, 0.5, 16 << 10}, {14e-6, 1.9e-6, 0.9375, 64 << 10}}};
  constexpr double kBlockBandwidth = 25e9;  // of one thread block
  constexpr double kPciBandwidth = 24e9;
  const Times& times = kTimes[static_cast<size_t>(protocol)];
  const double link = machine.bandwidth > 0 ? machine.bandwidth : kPciBandwidth;
  CostParameters one;
  one.alpha = one.sliceAlpha = times.hop;
  one.beta = 1 / (link * times.payload);
  one.streamByte = 1 / (kBlockBandwidth * times.payload);
  one.perChannel = 0.05e-6;
  // Flags alone: a store, and the load that sees it; no data to wait for.
  one.signal = 1.5e-6;
  one.perPeer = 0.1e-6;
  one.coreByte = std::max(1 / link, one.streamByte / std::max(1, channels));
  one.sliceBytes = static_cast<size_t>(times.sliceBytes);
  TwoLevelCosts costs;
  costs.call = times.call;
  costs.asynchronous = true;
  costs.inside = forChannels(one, channels);
  costs.between = costs.inside;
  costs.between.beta = 0;
  return costs;
}

CostForm costForm(const CostQuery& query, int32_t blocks) {
  const FormInput in =
      formInput(query.algorithm, query.collective, query.ranks, std::max(1, query.hosts), blocks);
  if (query.algorithm.starts_with(kPairPrefix)) {
    const std::string_view pair = query.algorithm.substr(kPairPrefix.size());
    const size_t slash = pair.find('/');
    if (slash == std::string_view::npos) return {};
    return pairForm(in, pair.substr(0, slash), pair.substr(slash + 1));
  }
  for (const auto& [name, form] : kForms)
    if (name == query.algorithm) return form(in);
  return {};
}

bool pipelinesBlocks(std::string_view algorithm, Collective collective) {
  return algorithm == "circulant" &&
         (collective == Collective::broadcast || collective == Collective::reduce);
}

int32_t bestBlocks(const CostQuery& query, const CostParameters& costs) {
  CostQuery any = query;
  any.blocks = 0;
  return blocksOf(any, oneLevel(costs, query.channels));
}

double predictSeconds(const CostQuery& query, const TwoLevelCosts& costs) {
  if (query.ranks <= 1) return costs.call + 2 * static_cast<double>(query.bytes) * costs.inside.coreByte;
  const CostForm form = costForm(query, blocksOf(query, costs));
  return form.known ? secondsOf(form, query, costs) : std::numeric_limits<double>::infinity();
}

double predictSeconds(const CostQuery& query, const CostParameters& costs) {
  return predictSeconds(query, oneLevel(costs, query.channels));
}

}  // namespace tutti
