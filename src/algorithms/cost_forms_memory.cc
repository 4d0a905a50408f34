// Loads and stores as the checker counts them (Certificate::memoryTraffic).
#include "algorithms/cost_forms.h"

namespace tutti {
namespace {

CostForm memoryForm(double barriers, double own, double traffic) {
  CostForm form;
  form.known = form.exactRounds = form.exactSent = true;
  form.rounds = form.barriers = barriers;
  form.own = own;
  form.traffic = traffic;
  return form;
}

}  // namespace

/// Everyone copies to its scratch, one barrier, everyone reads what it needs.
CostForm oneShotForm(const FormInput& in) {
  const double p = in.p;
  switch (in.collective) {
    case Collective::allReduce:
      return memoryForm(1, p + 3, p * (p + 3));
    case Collective::reduceScatter:
      return memoryForm(1, 3 + 1 / p, 3 * p + 1);
    case Collective::allGather:
      return memoryForm(1, 2 + 2 / p, 2 * p + 2);
    case Collective::broadcast:
      return memoryForm(1, 4, 2 * p + 2);  // the root copies twice before the readers can begin
    case Collective::allToAll:
      return memoryForm(1, 4, 4 * p);
    case Collective::gather:
      return memoryForm(1, 2 + 2 / p, 4 - 2 / p);
    case Collective::scatter:
      return memoryForm(1, 2 + 4 / p, 4);
    default:
      return memoryForm(1, p + 3, 3 * p + 1);
  }
}

CostForm twoShotForm(const FormInput& in) { return memoryForm(2, 5 + 1 / in.p, 5 * in.p + 1); }

/// Entry barrier, one pass over the users' buffers (2 p n for AllReduce: the least there is), exit barrier.
CostForm directForm(const FormInput& in) {
  const double p = in.p;
  CostForm form;
  switch (in.collective) {
    case Collective::allReduce:
      form = memoryForm(2, 2, 2 * p);
      break;
    case Collective::reduceScatter:
    case Collective::reduce:
      form = memoryForm(2, 1 + 1 / p, p + 1);
      break;
    case Collective::gather:
    case Collective::scatter:
      form = memoryForm(2, 2 / p, 2);
      break;
    default:  // allGather, allToAll, broadcast
      form = memoryForm(2, 2, 2 * p);
      break;
  }
  form.fixed = kNegotiationSeconds;
  form.negotiations = 1;
  return form;
}

}  // namespace tutti
