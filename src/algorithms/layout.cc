#include "algorithms/layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tutti {

Layout::Layout(std::vector<int32_t> order) : order_(std::move(order)), position_(order_.size(), -1) {
  bool isIdentity = true;
  for (size_t i = 0; i < order_.size(); ++i) {
    const auto rank = static_cast<size_t>(order_[i]);
    if (order_[i] < 0 || rank >= order_.size() || position_[rank] != -1) {
      valid_ = false;
      return;
    }
    position_[rank] = static_cast<int32_t>(i);
    isIdentity = isIdentity && rank == i;
  }
  if (isIdentity) {
    order_.clear();
    position_.clear();
  }
}

int32_t Layout::rankAt(int32_t position) const {
  return order_.empty() ? position : order_[static_cast<size_t>(position)];
}

int32_t Layout::positionOf(int32_t rank) const {
  return order_.empty() ? rank : position_[static_cast<size_t>(rank)];
}

std::vector<std::vector<int32_t>> hostsOf(const ScheduleRequest& request) {
  if (!request.hosts.empty()) return request.hosts;
  std::vector<std::vector<int32_t>> hosts;
  for (int32_t position = 0; position < request.ranks; ++position)
    hosts.push_back({request.layout.rankAt(position)});
  return hosts;
}

int32_t hostOf(const std::vector<std::vector<int32_t>>& hosts, int32_t rank) {
  const auto found = std::ranges::find_if(hosts, [&](const std::vector<int32_t>& ranks) {
    return std::ranges::find(ranks, rank) != ranks.end();
  });
  return static_cast<int32_t>(found - hosts.begin());
}

std::vector<std::vector<int32_t>> consecutiveHosts(const std::vector<int32_t>& sizes) {
  std::vector<std::vector<int32_t>> hosts;
  int32_t rank = 0;
  for (const int32_t size : sizes) {
    std::vector<int32_t>& host = hosts.emplace_back(static_cast<size_t>(size));
    std::iota(host.begin(), host.end(), rank);
    rank += size;
  }
  return hosts;
}

Schedule makeSchedule(const ScheduleRequest& request, std::string name, int32_t parts) {
  Schedule schedule;
  schedule.name = std::move(name);
  schedule.collective = request.collective;
  schedule.ranks = request.ranks;
  schedule.rank = request.rank;
  schedule.root = request.root;
  schedule.parts = parts;
  return schedule;
}

Schedule singleRank(const ScheduleRequest& request, std::string name) {
  Schedule schedule = makeSchedule(request, std::move(name), 1);
  schedule.maxCount = 0;
  schedule.lanes.emplace_back().copy({Buffer::input, 0}, {Buffer::output, 0}).finalize =
      isReduction(request.collective);
  return schedule;
}

}  // namespace tutti
