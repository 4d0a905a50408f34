#include "algorithms/double_tree.h"

#include <bit>
#include <utility>

namespace tutti {
namespace {

// In-order binary tree over 1 .. m: odd numbers are leaves, and a number with k trailing zeros stands k
// levels above them. 0 is the root that hangs above. m = 6:
//
//            0
//            |
//            4            In the second tree, numbers are mirrored (m even) or shifted by one (m odd):
//          /   \          both swap odd and even, so inner nodes of one tree are leaves of the other.
//         2     6
//        / \   /
//       1   3 5
struct Labels {
  int32_t parent = -1;
  std::array<int32_t, 2> children = {-1, -1};
};

Labels inOrderTree(int32_t m, int32_t label) {
  Labels node;
  if (label == 0) {
    node.children[0] = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(m)));
    return node;
  }
  const int32_t bit = label & -label;
  const int32_t up = (label ^ bit) | (bit << 1);
  node.parent = up <= m ? up : label ^ bit;
  int32_t reach = bit / 2;
  if (reach > 0) node.children[0] = label - reach;
  while (reach > 0 && label + reach > m) reach /= 2;
  if (reach > 0) node.children[1] = label + reach;
  return node;
}

int32_t toSecondTree(int32_t m, int32_t place) {
  if (place == 0) return 0;
  return m % 2 == 0 ? m + 1 - place : place % m + 1;
}

int32_t fromSecondTree(int32_t m, int32_t label) {
  if (label <= 0) return label;
  return m % 2 == 0 ? m + 1 - label : wrap(label - 2, m) + 1;
}

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
  const int32_t m = ranks - 1;
  const int32_t rootPosition = layout.positionOf(root);
  const int32_t place = wrap(layout.positionOf(rank) - rootPosition, ranks);
  const auto rankOf = [&](int32_t p) { return p < 0 ? -1 : layout.rankAt(wrap(p + rootPosition, ranks)); };

  const Labels first = inOrderTree(m, place);
  const Labels second = inOrderTree(m, toSecondTree(m, place));
  const auto other = [&](int32_t label) { return rankOf(fromSecondTree(m, label)); };
  return {TreeNode{rankOf(first.parent), {rankOf(first.children[0]), rankOf(first.children[1])}},
          TreeNode{other(second.parent), {other(second.children[0]), other(second.children[1])}}};
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
