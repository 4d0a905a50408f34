#include "core/choice_calls.h"

#include <algorithm>
#include <string_view>

#include "algorithms/algorithm_filter.h"
#include "base/datatype.h"
#include "core/communicator.h"
#include "core/group.h"
#include "core/handle.h"
#include "core/validate.h"

namespace tutti {
namespace {

template <size_t kBytes>
void copyText(std::string_view text, char (&field)[kBytes]) {
  field[text.copy(field, kBytes - 1)] = '\0';
}

/// The structure may grow: callers get as much of it as they know.
Status checkPlan(const tuttiPlan_t* plan) {
  constexpr size_t kNeeded = offsetof(tuttiPlan_t, maxChannels) + sizeof plan->maxChannels;
  if (plan == nullptr) return invalidArgument("plan is null");
  if (plan->size < kNeeded)
    return invalidArgument(
        "plan.size is {}, but the structure has {} bytes: initialise it with TUTTI_PLAN_INITIALIZER",
        plan->size, kNeeded);
  return Status::ok();
}

void describe(const Planner& planner, const Choice& choice, tuttiPlan_t* plan) {
  const SelectorInput place = planner.inputFor({}, false);
  plan->hosts = place.hosts;
  plan->rails = place.rails;
  plan->maxChannels = place.maxChannels;
  const bool none = choice.algorithm == nullptr;
  copyText(none ? std::string_view() : std::string_view(choice.algorithm->name), plan->algorithm);
  copyText(none ? "" : name(choice.protocol), plan->protocol);
  copyText(none ? std::string() : planner.reasonText(choice), plan->reason);
  plan->channels = none ? 0 : choice.channels;
  plan->seconds = choice.predictedSeconds;
}

}  // namespace

Status setAlgo(ncclComm_t comm, const char* algo, const char* proto, int channels) {
  TUTTI_ASSIGN(const CommUse communicator, resolveForWork(comm));
  if (Group::ofThisThread().active())
    return invalidUsage("inside a group: its calls would be made before, but launched after");
  // Calls that were enqueued run as it was said when they were made.
  TUTTI_TRY(communicator->finalize());
  return communicator->planner().pin(algo == nullptr ? "" : algo, proto == nullptr ? "" : proto, channels);
}

Status queryPlan(ncclComm_t comm, const char* function, size_t count, ncclDataType_t type, int mapped,
                 tuttiPlan_t* plan) {
  TUTTI_ASSIGN(const CommUse communicator, resolveHandle(comm));
  TUTTI_TRY(checkPlan(plan));
  TUTTI_TRY(checkType(type));
  if (function == nullptr) return invalidArgument("function is null");
  const auto collective = findFunction(function);
  if (!collective) return invalidArgument("\"{}\" is no function; known are {}", function, knownFunctions());
  if (mapped != 0 && mapped != 1) return invalidArgument("mapped is {}, but must be 0 or 1", mapped);
  TUTTI_TRY(checkSize(count, sizeOf(type), communicator->ranks()));
  TUTTI_TRY(communicator->error());
  Operation operation;
  operation.collective = *collective;
  operation.count = count;
  operation.type = type;
  Planner& planner = communicator->planner();
  TUTTI_ASSIGN(const Choice choice, planner.choiceFor(operation, mapped != 0));
  describe(planner, choice, plan);
  return Status::ok();
}

Status lastPlan(ncclComm_t comm, tuttiPlan_t* plan) {
  TUTTI_ASSIGN(const CommUse communicator, resolveHandle(comm));
  TUTTI_TRY(checkPlan(plan));
  TUTTI_TRY(communicator->error());
  const Planner& planner = communicator->planner();
  describe(planner, planner.lastUsed(), plan);
  return Status::ok();
}

}  // namespace tutti
