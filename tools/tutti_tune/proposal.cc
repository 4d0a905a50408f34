#include "tutti_tune/proposal.h"

#include <cstdlib>
#include <memory>

#include "tutti_tune/entries.h"
#include "tutti_tune/fit.h"
#include "tutti_tune/judge.h"
#include "tutti_tune/tables.h"

namespace tutti::tune {
namespace {

/// The shipped parameters, as they are where these measurements were made.
MachineCosts shippedCosts(const std::vector<Point>& points) {
  for (const Point& point : points)
    if (!point.input.allMapped) return {sharedMemoryCosts(), tcpCosts(point.input.linkBandwidth)};
  return {sharedMemoryCosts(), tcpCosts()};
}

const CostParameters& part(const MachineCosts& costs, CostMedium medium) {
  return medium == CostMedium::shared ? costs.shared : costs.network;
}

/// Adds to the file the parameters of the medium that a fit changed; as the file has them, with four digits.
void addParameters(TuningFile& file, const MachineCosts& before, const MachineCosts& after,
                   CostMedium medium) {
  for (const CostParameterName& one : costParameterNames())
    if (const double value = part(after, medium).*one.value; value != part(before, medium).*one.value)
      file.set(medium, one, std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr));
}

/// Takes parameters into the proposal where they make better choices.
Status addFits(const Halves& halves, Proposal& proposal) {
  const MachineCosts shipped = shippedCosts(halves.learnt);
  MachineCosts costs = shipped;
  for (const CostMedium medium : kCostMedia) {
    const Fit found = fit(halves.learnt, *CandidateSet::sharedShipped(), costs, medium);
    if (found.used == 0) continue;
    TuningFile trial = proposal.file;
    addParameters(trial, shipped, found.costs, medium);
    TUTTI_ASSIGN(const Selector selector, selectorWith(trial));
    const double mean = meanOf(halves.judges, selector);
    if (mean < proposal.proposed) {
      proposal.findings += fitText(found, medium, shipped);
      proposal.file = std::move(trial);
      proposal.proposed = mean;
      costs = found.costs;
    } else {
      proposal.findings += fmt::format(
          "# {}: no parameters are written: by those that fit {} measured times, what is chosen is not "
          "better "
          "(chosen/best {:.3f}, without them {:.3f})\n",
          name(medium), found.used, mean, proposal.proposed);
    }
  }
  return Status::ok();
}

Status addEntries(const Halves& halves, double noise, Proposal& proposal) {
  TUTTI_ASSIGN(const Selector model, selectorWith(proposal.file));
  const Entries entries = entriesFor(halves.learnt, halves.judges, model, noise);
  for (const TuningEntry& entry : entries.all) proposal.file.add(entry);
  TUTTI_ASSIGN(const Selector final, selectorWith(proposal.file));
  proposal.proposed = meanOf(halves.judges, final);
  proposal.findings += fmt::format("# {} entries; those of {} calls were dropped: they did not hold\n",
                                   entries.all.size(), entries.dropped);
  return Status::ok();
}

}  // namespace

Result<Selector> selectorWith(const TuningFile& file) {
  SelectorSettings settings;
  settings.tuning = std::make_shared<const TuningFile>(file);
  return Selector::create(CandidateSet::sharedShipped(), std::move(settings));
}

Result<Proposal> propose(const std::vector<Point>& points, double noise) {
  const Halves halves = halvesOf(points);
  Proposal proposal;
  TUTTI_ASSIGN(const Selector shipped, selectorWith({}));
  proposal.shipped = proposal.proposed = meanOf(halves.judges, shipped);
  TUTTI_TRY(addFits(halves, proposal));
  TUTTI_TRY(addEntries(halves, noise, proposal));
  proposal.helps = proposal.proposed < proposal.shipped;
  proposal.findings += fmt::format(
      "# Judged by the half of the samples that the file is not made from: geometric mean of chosen/best "
      "{:.3f} as shipped, {:.3f} with the file\n",
      proposal.shipped, proposal.proposed);
  if (!proposal.helps)
    proposal.findings += "# The file does not help: what is chosen without it is as good\n";
  return proposal;
}

}  // namespace tutti::tune
