// Runs what the options ask for: every algorithm, size and rank count.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/registry.h"
#include "algorithms/simulator/simulate.h"
#include "topology/description.h"
#include "tutti_sim/options.h"

namespace tutti::simtool {

/// One line of the table.
struct Row {
  int32_t ranks = 0;
  int32_t hosts = 1;
  double bytes = 0;
  std::string algorithm;
  std::string protocol;  // empty for hosts without GPUs
  int32_t blocks = 0;    // of a pipeline; 0: none
  sim::Outcome outcome;

  double algorithmBandwidth() const { return outcome.seconds > 0 ? bytes / outcome.seconds : 0; }
  double busBandwidth(Collective collective) const {
    return algorithmBandwidth() * sim::busFactor(collective, ranks);
  }
};

/// Keeps clusters once they are built.
class Study {
 public:
  /// `options` outlives the study. Reads the topology file.
  static Result<Study> make(const Options& options);

  /// The algorithms asked for that exist for the collective on so many ranks. With `all`, those that cannot
  /// run here are left out; one that was named is an error.
  Result<std::vector<std::string>> algorithmsFor(int32_t ranks) const;
  Result<Row> run(const std::string& algorithm, int32_t ranks, double bytes);
  /// All rows, in the order ranks, sizes, algorithms; with --best the fastest of each size only.
  Result<std::vector<Row>> runAll();
  /// Names what "all" left out, and why.
  const std::vector<std::string>& leftOut() const { return leftOut_; }

  int32_t hostsFor(int32_t ranks) const;
  /// The cluster of that many ranks. GPUs: with the times of a protocol, of rings or trees.
  Result<const sim::Cluster*> cluster(int32_t ranks, sim::Protocol protocol, bool tree);
  /// The same without keeping it, with a placement.
  Result<sim::Cluster> build(int32_t ranks, sim::Protocol protocol, bool tree,
                             const std::vector<int32_t>& placement) const;
  bool gpus() const { return !options_->topoFile.empty(); }
  /// "64 ranks on 8 hosts: GPUs of x.xml, 8 ports of 400 Gbit/s, fat-tree".
  std::string describe(int32_t ranks) const;
  sim::Job job(const std::string& algorithm, double bytes, sim::Protocol protocol) const;

 private:
  explicit Study(const Options& options) : options_(&options) {}
  int32_t chooseBlocks(const Algorithm& algorithm, const sim::Cluster& cluster, double bytes) const;
  std::vector<sim::Protocol> protocols() const;
  /// Those to simulate: all, or for many ranks the one that closed forms find best.
  std::vector<sim::Protocol> protocolsFor(const std::string& algorithm, int32_t ranks, double bytes);

  const Options* options_;
  SystemDescription system_;
  int32_t gpusPerHost_ = 0;
  std::map<std::tuple<int32_t, sim::Protocol, bool>, sim::Cluster> clusters_;
  std::vector<std::string> leftOut_;
};

}  // namespace tutti::simtool
