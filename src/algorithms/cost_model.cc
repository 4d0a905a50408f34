#include "algorithms/cost_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tutti {
namespace {

/// One query with the numbers that all forms use.
struct Form {
  const CostParameters& c;
  Collective collective;
  double p;  // ranks
  double n;  // bytes of the whole vector
  double levels;
  double hosts;

  double gamma() const { return isReduction(collective) ? c.gamma : 0; }

  /// Time of `traffic` vectors loaded and stored by all ranks, the busiest of which has `own` of them.
  double memory(double own, double traffic) const {
    return std::max(own * n * c.coreByte, traffic * n * c.hostByte);
  }
  double barrier() const { return c.signal + (p - 2) * c.perPeer; }

  /// `rounds` messages in a row of which the busiest rank carries `volume` vectors, and reduces `reduced`.
  /// Inside a host their copies also share its memory: `traffic` vectors, by all ranks.
  double messages(double rounds, double volume, double reduced, double traffic) const {
    return rounds * c.alpha + std::max(volume * n * c.beta + reduced * n * gamma(), traffic * n * c.hostByte);
  }

  /// A pipeline of `stages` stages that each move `perStage` vectors of every slice of `pieces` parts.
  double pipeline(double stages, double perStage, double pieces, double traffic) const {
    const double slices = std::max(1.0, std::ceil(n / pieces / static_cast<double>(c.sliceBytes)));
    const double stage = c.alpha + n / slices * perStage * (c.beta + gamma());
    return std::max((stages - 1 + slices) * stage, traffic * n * c.hostByte);
  }
};

double ringSeconds(const Form& f) {
  const double share = (f.p - 1) / f.p;
  switch (f.collective) {
    case Collective::allReduce:
      return f.messages(2 * (f.p - 1), 2 * share, share, 6 * (f.p - 1));
    case Collective::allGather:
      return f.messages(f.p - 1, share, 0, 3 * (f.p - 1));
    case Collective::reduceScatter:
      return f.messages(f.p - 1, share, share, 3 * (f.p - 1));
    default:
      return f.pipeline(f.p - 1, 1, 1, 3 * (f.p - 1));
  }
}

double treeSeconds(const Form& f) {
  const double height = f.levels + 1;
  const bool both = f.collective == Collective::allReduce;
  // Each tree carries half of the vector; an inner node sends (or receives) it twice.
  return f.pipeline(both ? 2 * height : height, both ? 2 : 1, 2, (both ? 7 : 3.5) * (f.p - 1));
}

double doublingSeconds(const Form& f) {
  if (f.collective == Collective::allGather) return f.messages(f.levels, (f.p - 1) / f.p, 0, 4 * (f.p - 1));
  const double core = std::bit_floor(static_cast<uint64_t>(f.p));
  const bool folds = core != f.p;
  const double rounds = std::log2(core) + (folds ? 2 : 0);
  return f.messages(rounds, rounds, rounds - (folds ? 1 : 0), 5 * f.p * rounds);
}

// Loads and stores as the checker counts them (Certificate::memoryTraffic).
double oneShotSeconds(const Form& f) {
  const double p = f.p;
  switch (f.collective) {
    case Collective::allReduce:
      return f.barrier() + f.memory(p + 3, p * (p + 3));
    case Collective::reduceScatter:
      return f.barrier() + f.memory(3 + 1 / p, 3 * p + 1);
    case Collective::allGather:
      return f.barrier() + f.memory(2 + 2 / p, 2 * p + 2);
    case Collective::broadcast:
      return f.barrier() + f.memory(4, 2 * p + 2);  // the root copies twice before the readers can begin
    case Collective::allToAll:
      return f.barrier() + f.memory(4, 4 * p);
    case Collective::gather:
      return f.barrier() + f.memory(2 + 2 / p, 4 - 2 / p);
    case Collective::scatter:
      return f.barrier() + f.memory(2 + 4 / p, 4);
    default:
      return f.barrier() + f.memory(p + 3, 3 * p + 1);
  }
}

double directSeconds(const Form& f) {
  const double p = f.p;
  const double fixed = kNegotiationSeconds + 2 * f.barrier();
  switch (f.collective) {
    case Collective::allReduce:
      return fixed + f.memory(2, 2 * p);
    case Collective::reduceScatter:
    case Collective::reduce:
      return fixed + f.memory(1 + 1 / p, p + 1);
    case Collective::gather:
    case Collective::scatter:
      return fixed + f.memory(2 / p, 2);
    default:  // allGather, allToAll, broadcast
      return fixed + f.memory(2, 2 * p);
  }
}

// The busiest rank handles p - 1 messages, which it may all start at once.
double spreadSeconds(const Form& f) {
  const double share = (f.p - 1) / f.p;
  const double traffic = f.collective == Collective::allToAll ? 4 * (f.p - 1) + 2 : 4 * share + 2 / f.p;
  return f.messages(1, share, 0, traffic) + (f.p - 2) * f.c.perPeer;
}

// A ring over hosts, and the time of two more messages for what the ranks of a host tell each other before
// and after. All rails share the host's link.
double hierarchicalSeconds(const Form& f) {
  const double share = (f.hosts - 1) / f.hosts;
  return f.messages(2 * f.hosts, 2 * share, share, 0);
}

}  // namespace

CostParameters sharedMemoryCosts() {
  CostParameters costs;
  costs.alpha = 0.45e-6;
  costs.beta = 1 / 12e9;
  costs.gamma = 1 / 40e9;
  costs.signal = 0.15e-6;
  costs.perPeer = 0.04e-6;
  costs.coreByte = 1 / 38e9;
  costs.hostByte = 1 / 77e9;
  return costs;
}

CostParameters tcpCosts(double linkBandwidth) {
  CostParameters costs;
  costs.alpha = 15e-6;
  costs.beta = 1 / (linkBandwidth > 0 ? linkBandwidth : 1.25e9);
  costs.gamma = 1 / 20e9;
  return costs;
}

double predictSeconds(const CostQuery& query, const CostParameters& costs) {
  const Form form{costs,
                  query.collective,
                  static_cast<double>(query.ranks),
                  static_cast<double>(query.bytes),
                  std::ceil(std::log2(static_cast<double>(std::max(1, query.ranks)))),
                  static_cast<double>(query.hosts)};
  if (query.ranks <= 1) return 2 * form.n * costs.coreByte;
  if (query.algorithm == "ring") return ringSeconds(form);
  if (query.algorithm == "tree") return treeSeconds(form);
  if (query.algorithm == "doubling") return doublingSeconds(form);
  if (query.algorithm == "oneshot") return oneShotSeconds(form);
  if (query.algorithm == "twoshot") return 2 * form.barrier() + form.memory(5 + 1 / form.p, 5 * form.p + 1);
  if (query.algorithm == "direct") return directSeconds(form);
  if (query.algorithm == "spread") return spreadSeconds(form);
  if (query.algorithm == "hierarchical") return hierarchicalSeconds(form);
  return std::numeric_limits<double>::infinity();
}

}  // namespace tutti
