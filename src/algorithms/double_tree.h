// Double binary tree.
#pragma once

#include <array>

#include "algorithms/layout.h"
#include "topology/double_tree.h"

namespace tutti {

/// A rank's place in the two trees (topology/double_tree.h) of Sanders, Speck and Träff, "Two-tree algorithms
/// for full bandwidth broadcast, reduction and scan", Parallel Computing 2009, section 3; as ranks. `root`
/// feeds (or drains) both trees over the other ranks, and everyone else has children in one tree at most, so
/// each carries half of the data at full speed.
std::array<TreeNode, 2> doubleTree(int32_t ranks, int32_t rank, int32_t root, const Layout& layout);

/// AllReduce, Broadcast and Reduce on the double tree, pipelined by slices; the way up and the way down of
/// both trees are lanes that run concurrently. p ranks, n bytes, h = height <= ceil(log2 p) + 1:
///
///                  rounds a slice   bytes sent by a rank    order of the reduction
///   AllReduce      2h               at most 2n              node, first child's subtree, second child's
///   Broadcast      h                at most n (root: n)     -
///   Reduce         h                at most n               as AllReduce
///
/// The root's result is what everyone gets, so results are bitwise equal. Works with a FIFO of 1 slot; more
/// slots overlap slices.
Schedule doubleTreeSchedule(const ScheduleRequest& request);

}  // namespace tutti
