#include "algorithms/double_tree.h"

#include <utility>

namespace tutti {
namespace {

struct Builder {
  Schedule& schedule;
  std::array<TreeNode, 2> trees;

  static Location input(int32_t t) { return {Buffer::input, t}; }
  static Location output(int32_t t) { return {Buffer::output, t}; }

  /// Sends the reduction of the own subtree to the parent. `partial` keeps the sum of node and first child
  /// where there are two children.
  void upLane(int32_t t, Location partial) {
    const TreeNode& node = trees[static_cast<size_t>(t)];
    Lane& lane = schedule.lanes.emplace_back();
    if (node.childCount() == 0) {
      lane.send(node.parent, input(t), t);
    } else if (node.childCount() == 1) {
      lane.recvReduceSend(node.children[0], input(t), node.parent, t, t);
    } else {
      lane.recvReduce(node.children[0], input(t), partial, t);
      lane.recvReduceSend(node.children[1], partial, node.parent, t, t).sizeAs = t;
    }
  }

  /// Takes the result from the parent, keeps it and hands it to the children.
  void downLane(int32_t t) {
    const TreeNode& node = trees[static_cast<size_t>(t)];
    Lane& lane = schedule.lanes.emplace_back();
    if (node.childCount() == 0) {
      lane.recv(node.parent, output(t), t);
      return;
    }
    lane.recvCopySend(node.parent, output(t), node.children[0], t, t);
    if (node.childCount() == 2) lane.send(node.children[1], output(t), t);
  }

  /// The root has one child in each tree.
  void rootLane(int32_t t) {
    const int32_t child = trees[static_cast<size_t>(t)].children[0];
    Lane& lane = schedule.lanes.emplace_back();
    switch (schedule.collective) {
      case Collective::allReduce:
        lane.recvReduceCopySend(child, input(t), output(t), child, t, t).finalize = true;
        break;
      case Collective::broadcast:
        lane.send(child, input(t), t);
        lane.copy(input(t), output(t));
        break;
      default:
        lane.recvReduce(child, input(t), output(t), t).finalize = true;
        break;
    }
  }
};

}  // namespace

std::array<TreeNode, 2> doubleTree(int32_t ranks, int32_t rank, int32_t root, const Layout& layout) {
  // The root is place 0, above both trees; the others are nodes 0, 1, ... of them.
  const int32_t others = ranks - 1;
  const int32_t rootPosition = layout.positionOf(root);
  const int32_t place = wrap(layout.positionOf(rank) - rootPosition, ranks);
  const auto rankAt = [&](int32_t p) { return layout.rankAt(wrap(p + rootPosition, ranks)); };
  std::array<TreeNode, 2> trees;
  for (int32_t t = 0; t < 2 && others > 0; ++t) {
    TreeNode& node = trees[static_cast<size_t>(t)];
    if (place == 0) {
      node.children[0] = rankAt(doubleTreeTop(others, t) + 1);
      continue;
    }
    node = doubleTreeNode(others, place - 1, t);
    node.parent = rankAt(node.parent + 1);  // the top's is the root
    for (int32_t& child : node.children)
      if (child >= 0) child = rankAt(child + 1);
  }
  return trees;
}

Schedule doubleTreeSchedule(const ScheduleRequest& request) {
  if (request.ranks == 1) return singleRank(request, "tree");
  const bool rooted = request.collective != Collective::allReduce;
  const int32_t root = rooted ? request.root : request.layout.rankAt(0);
  Schedule schedule = makeSchedule(request, "tree", 2);
  const bool reducesOnly = request.collective == Collective::reduce;
  if (reducesOnly) schedule.scratchSegments = 2;  // there is no output to keep partial sums in
  Builder builder{schedule, doubleTree(request.ranks, request.rank, root, request.layout)};
  for (int32_t t = 0; t < 2; ++t) {
    if (request.rank == root) {
      builder.rootLane(t);
      continue;
    }
    if (request.collective != Collective::broadcast)
      builder.upLane(t, reducesOnly ? Location{Buffer::scratch, t} : Builder::output(t));
    if (!reducesOnly) builder.downLane(t);
  }
  return tidy(std::move(schedule));
}

}  // namespace tutti
