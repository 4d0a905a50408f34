#include "topology/double_tree.h"

#include <bit>

namespace tutti {
namespace {

// Positions from 1 on. A position's lowest bit is its level: odd ones are leaves, and the children of p with
// lowest bit b stand b/2 to its left and right:
//
//             4                  count = 6: 7 does not exist, so 6 has one child, and what would hang below a
//         2       6              position that does not exist hangs one level higher.
//       1   3   5   (7)
int32_t topOf(int32_t count) { return static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(count))); }

TreeNode inOrder(int32_t count, int32_t position) {
  const auto low = [](int32_t p) { return p & -p; };
  const int32_t top = topOf(count);
  TreeNode node;
  int32_t bit = low(position);
  if (position != top) {
    // Upwards, past positions that do not exist.
    int32_t parent = position;
    do {
      parent = (parent - bit) | (2 * bit);
      bit *= 2;
    } while (parent > count);
    node.parent = parent;
  }
  const int32_t half = low(position) / 2;
  if (half > 0) {
    node.children[0] = position - half;
    // To the right, the first one downwards that exists.
    for (int32_t step = half; step > 0; step /= 2)
      if (position + step <= count) {
        node.children[1] = position + step;
        break;
      }
  }
  return node;
}

int32_t positionOf(int32_t count, int32_t node, int32_t which) {
  if (which == 0) return node + 1;
  return count % 2 == 0 ? count - node : node == count - 1 ? 1 : node + 2;
}

/// -1 for -1.
int32_t nodeAt(int32_t count, int32_t position, int32_t which) {
  if (position < 0) return -1;
  if (which == 0) return position - 1;
  return count % 2 == 0 ? count - position : position == 1 ? count - 1 : position - 2;
}

}  // namespace

TreeNode doubleTreeNode(int32_t count, int32_t node, int32_t which) {
  TreeNode tree = inOrder(count, positionOf(count, node, which));
  tree.parent = nodeAt(count, tree.parent, which);
  for (int32_t& child : tree.children) child = nodeAt(count, child, which);
  return tree;
}

int32_t doubleTreeTop(int32_t count, int32_t which) { return nodeAt(count, topOf(count), which); }

}  // namespace tutti
