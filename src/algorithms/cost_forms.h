// The closed forms of single algorithms, for cost_model.cc.
#pragma once

#include "algorithms/cost_model.h"

namespace tutti {

/// What the forms are functions of.
struct FormInput {
  std::string_view algorithm;
  Collective collective = Collective::allReduce;
  double p = 1;  // ranks
  double hosts = 1;
  double blocks = 1;  // of pipelines
  double share = 0;   // (p - 1) / p
  double levels = 0;  // ceil(log2 p)
  double core = 1;    // largest power of two up to p
  double local() const { return p / hosts; }
  double levelsBetween() const;  // ceil(log2 hosts)
  /// Of a vector that every rank needs wholly, what leaves a host at least.
  double shareBetween() const { return (hosts - 1) / hosts; }
};
FormInput formInput(std::string_view algorithm, Collective collective, double ranks, double hosts,
                    double blocks);

// Algorithms of messages (cost_forms.cc).
CostForm ringForm(const FormInput& in);
CostForm treeForm(const FormInput& in);
CostForm doublingForm(const FormInput& in);
CostForm rabenseifnerForm(const FormInput& in);
CostForm circulantForm(const FormInput& in);
CostForm patForm(const FormInput& in);
CostForm binomialForm(const FormInput& in);
CostForm scatterAllGatherForm(const FormInput& in);
CostForm spreadForm(const FormInput& in);
CostForm pairwiseForm(const FormInput& in);
CostForm bruckForm(const FormInput& in);
CostForm hierarchicalForm(const FormInput& in);
/// hierarchical/INTRA/INTER.
CostForm pairForm(const FormInput& in, std::string_view intra, std::string_view inter);

// Algorithms of shared memory (cost_forms_memory.cc).
CostForm oneShotForm(const FormInput& in);
CostForm twoShotForm(const FormInput& in);
CostForm directForm(const FormInput& in);

}  // namespace tutti
