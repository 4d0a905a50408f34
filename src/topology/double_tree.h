// Two binary trees over the same nodes, so that each node is an inner node in at most one of them: with half
// of the data on each, every node sends and receives about the same (Sanders, Speck, Traeff: "Two-tree
// algorithms for full bandwidth broadcast, reduction and scan", 2009).
#pragma once

#include <array>
#include <cstdint>

namespace tutti {

/// Of one node; -1: none.
struct TreeNode {
  int32_t parent = -1;
  std::array<int32_t, 2> children = {-1, -1};
  int32_t childCount() const { return (children[0] >= 0) + (children[1] >= 0); }
  bool operator==(const TreeNode&) const = default;
};

/// Node `node` of tree `which` (0 or 1) over nodes 0 .. count-1. Tree 0 is the in-order tree whose leaves
/// have even numbers; tree 1 is its mirror image (count even), or the same one node further (count odd). At
/// most ceil(log2(count + 1)) levels.
TreeNode doubleTreeNode(int32_t count, int32_t node, int32_t which);

/// The node of that tree that has no parent. `count` is at least 1.
int32_t doubleTreeTop(int32_t count, int32_t which);

}  // namespace tutti
