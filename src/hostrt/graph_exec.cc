#include "hostrt/graph_exec.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "hostrt/device.h"
#include "hostrt/event.h"
#include "hostrt/kernel_run.h"
#include "hostrt/log.h"

namespace tutti::hostrt {
namespace {

constexpr size_t kMostLanes = 64;
constexpr size_t kNone = SIZE_MAX;

using Indices = std::vector<size_t>;

void addAll(Indices& to, const Indices& from) {
  for (const size_t value : from)
    if (std::find(to.begin(), to.end(), value) == to.end()) to.push_back(value);
}

/// Appends the graph's nodes as items; those without dependencies come after `entry`. Gives the items that
/// the graph ends with (`entry` when it is empty). False when there is a circle.
bool unfold(const Graph& graph, const Indices& entry, std::vector<ExecPlan::Item>& items, Indices& exit) {
  std::unordered_map<const GraphNode*, Indices> ends;
  const auto order = graph.ordered();
  if (order.size() != graph.nodes.size()) return false;
  if (order.empty()) addAll(exit, entry);
  for (const GraphNode* node : order) {
    Indices after;
    for (const GraphNode* dependency : node->dependencies) addAll(after, ends[dependency]);
    if (node->dependencies.empty()) after = entry;
    Indices& end = ends[node];
    if (const auto* child = std::get_if<std::shared_ptr<Graph>>(&node->work)) {
      if (!unfold(**child, after, items, end)) return false;
    } else {
      end.push_back(items.size());
      items.push_back({node, std::move(after), 0, false});
    }
    if (node->dependents.empty()) addAll(exit, end);
  }
  return true;
}

void dealLanes(ExecPlan& plan) {
  Indices last;  // item of each lane
  for (size_t i = 0; i < plan.items.size(); ++i) {
    auto& item = plan.items[i];
    size_t lane = kNone;
    for (const size_t before : item.after)
      if (lane == kNone && last[plan.items[before].lane] == before) lane = plan.items[before].lane;
    if (lane == kNone && last.size() == kMostLanes) lane = i % kMostLanes;
    if (lane == kNone) {
      lane = last.size();
      last.push_back(i);
    }
    item.lane = lane;
    last[lane] = i;
  }
  plan.lanes = last.size();
}

bool isEventWork(const NodeWork& work) {
  return std::holds_alternative<RecordWork>(work) || std::holds_alternative<WaitWork>(work);
}

void cutSegments(ExecPlan& plan) {
  Indices lastOf(plan.lanes, kNone);
  Indices nextOf(plan.items.size(), kNone);  // on the same lane
  for (size_t i = 0; i < plan.items.size(); ++i) {
    auto& item = plan.items[i];
    size_t& last = lastOf[item.lane];
    // Events are recorded and waited for by the launching thread, so each is a segment of its own.
    item.startsSegment =
        last == kNone || isEventWork(item.node->work) || isEventWork(plan.items[last].node->work);
    if (last != kNone) nextOf[last] = i;
    last = i;
  }
  for (auto& item : plan.items)
    for (const size_t before : item.after) {
      if (plan.items[before].lane == item.lane) continue;
      item.startsSegment = true;
      if (nextOf[before] != kNone) plan.items[nextOf[before]].startsSegment = true;
    }
}

void makeSegments(ExecPlan& plan) {
  cutSegments(plan);
  Indices segmentOf(plan.items.size());
  std::vector<Indices> members;
  Indices current(plan.lanes, kNone);
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const auto& item = plan.items[i];
    size_t& segment = current[item.lane];
    if (item.startsSegment) {
      segment = members.size();
      members.emplace_back();
      plan.segments.push_back({item.lane, 0, 0, {}});
    }
    segmentOf[i] = segment;
    members[segment].push_back(i);
    for (const size_t before : item.after)
      if (plan.items[before].lane != item.lane) addAll(plan.segments[segment].after, {segmentOf[before]});
  }
  for (size_t s = 0; s < members.size(); ++s) {
    plan.segments[s].begin = plan.members.size();
    plan.members.insert(plan.members.end(), members[s].begin(), members[s].end());
    plan.segments[s].end = plan.members.size();
  }
}

/// What the running segments of one launch share.
struct Launch {
  std::shared_ptr<const ExecPlan> plan;
  std::vector<tuttiStreamTask> tasks;  // by item; without `run` where the item is not the library's
};

void runItem(const Launch& launch, size_t index, Device& device) {
  const NodeWork& work = launch.plan->items[index].node->work;
  if (const auto* host = std::get_if<cudaHostNodeParams>(&work)) {
    host->fn(host->userData);
  } else if (const auto* copy = std::get_if<Copy>(&work)) {
    runCopy(*copy);
  } else if (const auto* fill = std::get_if<Fill>(&work)) {
    runFill(*fill);
  } else if (const auto* kernel = std::get_if<std::shared_ptr<const KernelLaunch>>(&work)) {
    runKernel(**kernel, device);
  } else if (!launch.tasks.empty() && launch.tasks[index].run) {
    const tuttiStreamTask& task = launch.tasks[index];
    task.run(task.context);
    if (task.release) task.release(task.context);
  }
}

/// Has the library prepare its part, in the order of the nodes: that is what it numbers its operations by.
cudaError_t prepareTasks(Launch& launch) {
  if (launch.plan->libraryItems == 0) return cudaSuccess;
  launch.tasks.resize(launch.plan->items.size());
  cudaError_t result = cudaSuccess;
  for (size_t i = 0; i < launch.tasks.size(); ++i) {
    const auto* work = std::get_if<std::shared_ptr<LibraryWork>>(&launch.plan->items[i].node->work);
    if (!work) continue;
    const int error = (*work)->launch(&launch.tasks[i]);
    if (error == 0) continue;
    launch.tasks[i] = {};
    explain("graph launch: work of the library cannot run: {}", ::strerrordesc_np(error));
    // The others have been numbered, so they must run.
    result = cudaErrorLaunchFailure;
  }
  return result;
}

}  // namespace

LiveObjects<GraphExec>& liveExecs() {
  static auto* all = new LiveObjects<GraphExec>;
  return *all;
}

GraphExec::GraphExec(Device& device, unsigned long long flags) : device_(device), flags_(flags) {
  liveExecs().add(this);
}

GraphExec::~GraphExec() {
  liveExecs().remove(this);
  // Launches that run end on these streams all the same.
  for (Stream* stream : streams_) destroyStream(*stream);
}

std::shared_ptr<const ExecPlan> GraphExec::plan() const {
  const std::lock_guard lock(mutex_);
  return plan_;
}

cudaError_t GraphExec::setGraph(std::shared_ptr<const Graph> snapshot) {
  auto plan = std::make_shared<ExecPlan>();
  plan->graph = std::move(snapshot);
  Indices exit;
  if (!unfold(*plan->graph, {}, plan->items, exit)) return cudaErrorInvalidValue;
  dealLanes(*plan);
  makeSegments(*plan);
  plan->libraryItems =
      static_cast<size_t>(std::count_if(plan->items.begin(), plan->items.end(), [](const auto& item) {
        return std::holds_alternative<std::shared_ptr<LibraryWork>>(item.node->work);
      }));
  std::shared_ptr<const ExecPlan> old;  // destroyed after the lock is given back
  const std::lock_guard lock(mutex_);
  while (streams_.size() + 1 < plan->lanes) {
    Stream* stream = createStream(device_, Stream::Kind::nonBlocking, cudaStreamNonBlocking, 0);
    if (!stream) return cudaErrorMemoryAllocation;
    streams_.push_back(stream);
  }
  old = std::exchange(plan_, std::move(plan));
  return cudaSuccess;
}

cudaError_t GraphExec::launch(Stream& stream) {
  const std::lock_guard lock(mutex_);
  auto launch = std::make_shared<Launch>();
  launch->plan = plan_;
  const ExecPlan& plan = *plan_;
  std::vector<Marker> ends(plan.segments.size());
  std::vector<Marker> laneEnds(plan.lanes);
  if (!lastEnd_.reached() && lastEnd_.stream != &stream) stream.enqueue({{lastEnd_}, {}, {}});
  const cudaError_t result = prepareTasks(*launch);
  Marker fork;
  if (plan.lanes > 1) fork = stream.enqueue({});
  std::vector<bool> hasBegun(plan.lanes);
  for (size_t s = 0; s < plan.segments.size(); ++s) {
    const auto& segment = plan.segments[s];
    Stream& lane = *laneStream(segment.lane, stream);
    StreamWork work;
    for (const size_t before : segment.after) work.after.push_back(ends[before]);
    if (segment.lane != 0 && !hasBegun[segment.lane]) work.after.push_back(fork);
    hasBegun[segment.lane] = true;
    const NodeWork& first = plan.items[plan.members[segment.begin]].node->work;
    if (const auto* wait = std::get_if<WaitWork>(&first)) {
      if (const Event* event = findEvent(wait->event)) work.after.push_back(event->marker());
    } else if (!isEventWork(first)) {
      work.work = [launch, segment = &segment, device = &lane.device] {
        for (size_t m = segment->begin; m < segment->end; ++m)
          runItem(*launch, launch->plan->members[m], *device);
      };
    }
    ends[s] = laneEnds[segment.lane] = lane.enqueue(std::move(work));
    if (const auto* record = std::get_if<RecordWork>(&first))
      if (Event* event = findEvent(record->event)) event->record(lane);
  }
  if (plan.lanes > 1) {
    StreamWork join;
    join.after.assign(laneEnds.begin() + 1, laneEnds.end());
    laneEnds[0] = stream.enqueue(std::move(join));
  }
  if (plan.lanes > 0) lastEnd_ = laneEnds[0];
  return result;
}

}  // namespace tutti::hostrt
