// Rounds and volumes are those of the sources named, and tests compare them with certificates.
//
// Over several hosts, ranks of a host are neighbours. Algorithms that halve distances move their large
// messages far (recursive halving, circulant), so what leaves a host is the sum over its ranks of what they
// send that far.
#include "algorithms/cost_forms.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tutti {
namespace {

constexpr double kPatBlocks = 32;  // that one message of PAT carries at most

CostForm messageForm(double rounds, double sent, double reduced, double traffic, double largest) {
  CostForm form;
  form.known = form.exactRounds = form.exactSent = true;
  form.rounds = rounds;
  form.sent = form.serial = sent;
  form.reduced = reduced;
  form.traffic = traffic;
  form.largest = largest;
  return form;
}

CostForm acrossHosts(CostForm form, double rounds, double hostSent) {
  form.roundsBetween = std::min(form.rounds, rounds);
  form.hostSent = hostSent;
  return form;
}

CostForm approximately(CostForm form) {
  form.exactRounds = form.exactSent = false;
  return form;
}

bool onPowerOfTwo(const FormInput& in) { return in.core == in.p; }
bool gathersOnly(const FormInput& in) { return in.collective == Collective::allGather; }

}  // namespace

double FormInput::levelsBetween() const { return std::ceil(std::log2(hosts)); }

FormInput formInput(std::string_view algorithm, Collective collective, double ranks, double hosts,
                    double blocks) {
  FormInput in{algorithm, collective, ranks, hosts, blocks};
  in.share = (ranks - 1) / ranks;
  in.levels = std::ceil(std::log2(ranks));
  in.core = static_cast<double>(std::bit_floor(static_cast<uint64_t>(ranks)));
  return in;
}

/// Ring (Patarasuk and Yuan 2009): 2 (p - 1) rounds, optimal volume. Over hosts a ring enters and leaves each
/// once. Broadcast and Reduce: a chain.
CostForm ringForm(const FormInput& in) {
  const double p = in.p;
  switch (in.collective) {
    case Collective::allReduce:
      return acrossHosts(messageForm(2 * (p - 1), 2 * in.share, in.share, 6 * p - 4, 1 / p), 2 * in.hosts,
                         2 * in.share);
    case Collective::allGather:
      return acrossHosts(messageForm(p - 1, in.share, 0, 3 * p, 1 / p), in.hosts, in.share);
    case Collective::reduceScatter:
      return acrossHosts(messageForm(p - 1, in.share, in.share, 3 * p - 1, 1 / p), in.hosts, in.share);
    default: {
      CostForm form = messageForm(p - 1, 1, in.collective == Collective::reduce ? 1 : 0, 3 * p - 1, 1);
      form.stages = p - 1;
      return acrossHosts(form, in.hosts - 1, 1);
    }
  }
}

/// Double binary tree (Sanders, Speck and Traeff 2009, section 3): each tree has half of the vector, and an
/// inner node sends (or receives) it twice. Rounds and volume are upper bounds.
CostForm treeForm(const FormInput& in) {
  const double height = in.levels + 1;
  const bool both = in.collective == Collective::allReduce;
  CostForm form = approximately(messageForm(both ? 2 * height : height, both ? 2 : 1, both ? 1 : 0,
                                            (both ? 7 : 3.5) * (in.p - 1), 0.5));
  form.stages = form.rounds;
  form.perStage = both ? 2 : 1;
  return acrossHosts(form, (both ? 2 : 1) * (in.levelsBetween() + 1), both ? 4 : 2);
}

/// Recursive doubling (Thakur, Rabenseifner and Gropp 2005, section 4): log2 p rounds, everything in each.
/// Ranks beyond a power of two fold into others before and after. ReduceScatter: recursive halving.
CostForm doublingForm(const FormInput& in) {
  if (in.collective != Collective::allReduce)
    return acrossHosts(messageForm(in.levels, in.share, gathersOnly(in) ? 0 : in.share,
                                   gathersOnly(in) ? 4 * in.p - 2 : 5 * (in.p - 1), 0.5),
                       in.levelsBetween(), in.local() * in.shareBetween());
  const bool folds = !onPowerOfTwo(in);
  const double rounds = std::log2(in.core) + (folds ? 2 : 0);
  CostForm form = messageForm(rounds, rounds, rounds - (folds ? 1 : 0), 5 * in.p * rounds, 1);
  if (folds) form = approximately(form);  // the last ones' neighbours wait for a fold, the others not
  return acrossHosts(form, in.levelsBetween() + (folds ? 2 : 0),
                     in.local() * (in.levelsBetween() + (folds ? 1 : 0)));
}

/// Recursive halving, then doubling (Rabenseifner 2004): 2 log2 p rounds and optimal volume on powers of two;
/// else a fold of the whole vector before and after.
CostForm rabenseifnerForm(const FormInput& in) {
  const bool folds = !onPowerOfTwo(in);
  const double share = (in.core - 1) / in.core;
  const double fold = folds ? 1 : 0;
  const CostForm form = messageForm(2 * std::log2(in.core) + 2 * fold, 2 * share + fold, share + fold,
                                    9 * (in.core - 1) + 9 * (in.p - in.core), folds ? 1 : 0.5);
  return acrossHosts(folds ? approximately(form) : form, 2 * in.levelsBetween() + 2 * fold,
                     in.local() * 2 * in.shareBetween());
}

/// Circulant graphs (Traeff, TU Wien repositum 20.500.12708/219280): ceil(log2 p) rounds a phase and optimal
/// volume for every p. Broadcast and Reduce (Traeff, arXiv 2407.18004): blocks - 1 + ceil(log2 p) rounds of a
/// block each.
CostForm circulantForm(const FormInput& in) {
  const double p = in.p;
  const double farSent = in.local() * in.shareBetween();
  switch (in.collective) {
    case Collective::allReduce:
      return acrossHosts(
          messageForm(2 * in.levels, 2 * in.share, in.share, 9 * (p - 1), std::floor(p / 2) / p),
          2 * in.levelsBetween(), 2 * farSent);
    case Collective::allGather:
      return acrossHosts(messageForm(in.levels, in.share, 0, 4 * p - 2, std::floor(p / 2) / p),
                         in.levelsBetween(), farSent);
    case Collective::reduceScatter:
      return acrossHosts(messageForm(in.levels, in.share, in.share, 5 * (p - 1), std::floor(p / 2) / p),
                         in.levelsBetween(), farSent);
    default: {
      const double rounds = in.blocks - 1 + in.levels;
      CostForm form = messageForm(rounds, rounds / in.blocks, 0, 4 * (p - 1), 1 / in.blocks);
      // Blocks do not wait for each other everywhere: the certificate's chain is shorter. And the busiest
      // rank sends in every round at most.
      form.exactRounds = form.exactSent = false;
      if (in.collective == Collective::reduce) form.reduced = form.serial;
      return acrossHosts(form, rounds, in.local());
    }
  }
}

/// PAT (NCCL 2.23; peers.md 2.4): trees at distances p/2, p/4, ... whose messages grow as they come near, and
/// never carry more than a fixed number of blocks, so near rounds repeat.
CostForm patForm(const FormInput& in) {
  double rounds = 0;
  for (double carried = 1, missing = in.p - 1; missing > 0; carried *= 2) {
    const double blocks = std::min(carried, missing);
    rounds += std::ceil(blocks / kPatBlocks);
    missing -= blocks;
  }
  const CostForm form = messageForm(rounds, in.share, gathersOnly(in) ? 0 : in.share,
                                    gathersOnly(in) ? 4 * in.p - 2 : 5 * (in.p - 1),
                                    std::min(kPatBlocks, std::floor(in.p / 2)) / in.p);
  // How rounds overlap once messages are cut is the schedule's matter.
  return acrossHosts(in.p > 2 * kPatBlocks ? approximately(form) : form, in.levelsBetween(),
                     in.shareBetween());
}

/// Messages in a row in a binomial tree of p ranks. The largest subtree is served first; a parent's next
/// message leaves before the one before it has arrived, half a message later (LogP; Culler et al. 1993,
/// section 3).
double binomialRounds(double p) {
  if (p <= 2) return p - 1;
  const double half = std::exp2(std::ceil(std::log2(p)) - 1);
  if (2 * half == p) return std::log2(p);
  return std::max(1 + binomialRounds(p - half), 0.5 + std::log2(half));
}

/// Binomial trees (Thakur et al. 2005, section 4; MPICH): everything in each of ceil(log2 p) rounds; Gather
/// and Scatter move the blocks of a subtree.
CostForm binomialForm(const FormInput& in) {
  const double far = (in.p - in.local()) / in.p;
  switch (in.collective) {
    case Collective::broadcast: {
      CostForm form = messageForm(binomialRounds(in.p), in.levels, 0, 4 * (in.p - 1), 1);
      form.exactRounds = form.exactSent = onPowerOfTwo(in);
      return acrossHosts(form, binomialRounds(in.hosts), in.levelsBetween());
    }
    case Collective::reduce: {
      CostForm form = messageForm(binomialRounds(in.p), 1, in.levels, 5 * (in.p - 1), 1);
      form.serial = in.levels;
      form.exactRounds = onPowerOfTwo(in);
      return acrossHosts(form, binomialRounds(in.hosts), in.levelsBetween());
    }
    case Collective::gather: {
      CostForm form = approximately(messageForm(in.levels, 0.5, 0, 2 * in.levels, 0.5));
      form.serial = in.share;
      form.exactRounds = onPowerOfTwo(in);
      form.exactSent = onPowerOfTwo(in) && in.p > 2;
      return acrossHosts(form, in.levelsBetween(), far);
    }
    default: {
      CostForm form = messageForm(in.levels, in.share, 0, 2 * in.levels, 0.5);
      form.exactRounds = onPowerOfTwo(in);
      return acrossHosts(form, in.levelsBetween(), far);
    }
  }
}

/// Broadcast: binomial Scatter, circulant AllGather. Reduce: circulant ReduceScatter, binomial Gather (van de
/// Geijn; Thakur et al. 2005, section 4.4 with the circulant form in the ring's place).
CostForm scatterAllGatherForm(const FormInput& in) {
  const double reduced = in.collective == Collective::reduce ? in.share : 0;
  const CostForm form =
      messageForm(2 * in.levels, 2 * in.share, reduced, 4 * (in.p - 1) + 2 * in.levels, 0.5);
  return acrossHosts(approximately(form), 2 * in.levelsBetween(),
                     in.local() * in.shareBetween() + in.shareBetween());
}

/// All messages at once: the busiest rank handles p - 1 of them.
CostForm spreadForm(const FormInput& in) {
  const bool all = in.collective == Collective::allToAll;
  CostForm form = messageForm(1, in.collective == Collective::gather ? 1 / in.p : in.share, 0,
                              all ? 4 * (in.p - 1) + 2 : 4 * in.share + 2 / in.p, 1 / in.p);
  form.serial = in.share;
  form.extraMessages = in.p - 2;
  form.extraBetween = in.hosts > 1 ? std::max(0.0, in.p - in.local() - 1) : 0;
  // A root sends, or receives, the others' messages; where all talk to all, each does both.
  if (!all) {
    form.extraMessages /= 2;
    form.extraBetween /= 2;
  }
  const double far = (in.p - in.local()) / in.p;
  return acrossHosts(form, in.hosts > 1 ? 1 : 0, all ? in.local() * far : far);
}

/// One exchange a round: p rounds, in one of which a rank meets itself.
CostForm pairwiseForm(const FormInput& in) {
  const CostForm form = messageForm(in.p > 2 ? in.p : 1, in.share, 0, 4 * (in.p - 1) + 2, 1 / in.p);
  return acrossHosts(form, in.p - in.local(), in.local() * (in.p - in.local()) / in.p);
}

/// Bruck et al. 1997: round k moves the blocks whose distance has bit k set.
CostForm bruckForm(const FormInput& in) {
  double blocks = 0, largest = 0, far = 0;
  const auto p = static_cast<int64_t>(in.p);
  for (int64_t bit = 1; bit < p; bit *= 2) {
    const int64_t whole = p / (2 * bit) * bit;
    const auto moved = static_cast<double>(whole + std::max<int64_t>(0, p % (2 * bit) - bit));
    blocks += moved;
    largest = std::max(largest, moved);
    if (static_cast<double>(bit) >= in.local()) far += moved;
  }
  const CostForm form = messageForm(in.levels, blocks / in.p, 0, 4 * blocks + 4 * in.p, largest / in.p);
  return acrossHosts(form, in.levelsBetween(), in.local() * far / in.p);
}

/// Rings over hosts (hierarchical.h): the ranks of a host share the work of its rails, and its link. What
/// they tell each other before and after takes the time of two more messages.
CostForm hierarchicalForm(const FormInput& in) {
  const double share = in.shareBetween();
  CostForm form = messageForm(2 * in.hosts, 2 * share, share, 0, 1 / in.hosts / in.local());
  form.exactRounds = form.exactSent = false;
  return acrossHosts(form, 2 * in.hosts - 2, 2 * share);
}

/// On every rail, 1 / (ranks of a host) of the vector: Reduce inside the hosts, AllReduce between them,
/// Broadcast inside.
CostForm pairForm(const FormInput& in, std::string_view intra, std::string_view inter) {
  const auto part = [&](std::string_view algorithm, Collective collective, double ranks) {
    return costForm({algorithm, collective, static_cast<int32_t>(ranks)}, 1);
  };
  const double local = std::ceil(in.local());
  const CostForm up = part(intra, Collective::reduce, local);
  const CostForm across = part(inter, Collective::allReduce, in.hosts);
  const CostForm down = part(intra, Collective::broadcast, local);
  CostForm form;
  if ((local > 1 && (!up.known || !down.known)) || !across.known) return form;
  form = messageForm(up.rounds + across.rounds + down.rounds, 0, 0, 0,
                     std::max(across.largest, local > 1 ? 1.0 : 0.0) / local);
  form = approximately(form);
  // A rank is a leaf of some rails' trees and the worker of its own: all rails together move a Reduce's whole
  // traffic, evenly over the ranks.
  form.serial = form.sent = (local > 1 ? 2 * (local - 1) / local : 0) + across.serial / local;
  form.reduced = (local > 1 ? (local - 1) / local : 0) + across.reduced / local;
  form.traffic = up.traffic + down.traffic;
  return acrossHosts(form, across.rounds, across.sent);
}

}  // namespace tutti
