#include "algorithms/symbolic/value.h"

#include <fmt/format.h>

namespace tutti {
namespace {

constexpr int32_t kExactRanks = 64;
constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;
constexpr size_t kLongText = 160;

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a fixed random label for each rank.
uint64_t label(int32_t rank) {
  uint64_t z = (static_cast<uint64_t>(rank) + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) % kPrime;
}

}  // namespace

ExpressionTable::ExpressionTable(int32_t ranks)
    : ranks_(ranks), exact_(ranks <= kExactRanks), nodes_(static_cast<size_t>(ranks)) {
  for (int32_t rank = 0; rank < ranks; ++rank) {
    nodes_[index(rank)].set = exact_ ? uint64_t{1} << rank : label(rank);
    all_ = exact_ ? all_ | nodes_[index(rank)].set : (all_ + nodes_[index(rank)].set) % kPrime;
  }
}

Result<int32_t> ExpressionTable::combine(int32_t left, int32_t right) {
  const uint64_t key = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  const Node& a = nodes_[index(left)];
  const Node& b = nodes_[index(right)];
  if (exact_ && (a.set & b.set) != 0)
    return internalError("the contribution of rank {} is reduced twice: ({}) (+) ({})",
                         __builtin_ctzll(a.set & b.set), toText(left), toText(right));
  if (a.count + b.count > ranks_)
    return internalError("{} contributions of {} ranks: one is reduced twice", a.count + b.count, ranks_);
  Node node{left, right, a.count + b.count, 1 + (a.depth > b.depth ? a.depth : b.depth), 0};
  node.set = exact_ ? a.set | b.set : (a.set + b.set) % kPrime;
  nodes_.push_back(node);
  const auto expression = static_cast<int32_t>(nodes_.size() - 1);
  known_.emplace(key, expression);
  return expression;
}

bool ExpressionTable::containsAll(int32_t expression) const {
  const Node& node = nodes_[index(expression)];
  return node.count == ranks_ && node.set == all_;
}

void ExpressionTable::appendText(int32_t expression, std::string& text) const {
  if (text.size() > 2 * kLongText) return;
  const Node& node = nodes_[index(expression)];
  if (node.left < 0) {
    text += fmt::format("{}", expression);
    return;
  }
  for (const int32_t side : {node.left, node.right}) {
    if (side == node.right && node.left != node.right) text += " + ";
    const bool inner = nodes_[index(side)].left >= 0;
    if (inner) text += "(";
    appendText(side, text);
    if (inner) text += ")";
  }
}

std::string ExpressionTable::toText(int32_t expression) const {
  std::string text;
  appendText(expression, text);
  if (text.size() > kLongText) text = text.substr(0, kLongText) + " ...";
  return text;
}

}  // namespace tutti
