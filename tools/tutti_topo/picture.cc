#include "tutti_topo/picture.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "drawing/svg.h"
#include "topology/cpu_mask.h"
#include "topology/plan_report.h"
#include "topology/report.h"

namespace tutti::topo {
namespace {

using namespace drawing;

// Pixels.
constexpr double kMargin = 24, kGap = 10, kGpuWidth = 84, kNicWidth = 112, kOtherWidth = 64;
constexpr double kCpuTop = 112, kCpuHeight = 44, kSwitchHeight = 26, kLevel = 74;
constexpr double kGpuHeight = 44, kPortHeight = 34, kPortNameHeight = 22;
constexpr double kNvlinkZone = 150, kPlainZone = 110;
constexpr double kRowWidth = 2000;

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  double middle() const { return x + width / 2; }
  double bottom() const { return y + height; }
};

/// Rings that are the same but for where they begin.
struct RingClass {
  std::vector<size_t> channels;
  std::map<std::pair<int32_t, int32_t>, int> steps;  // how many channels take it
};

class Picture {
 public:
  Picture(const Graph& graph, const Paths& paths, const SearchRequest& request, const ChannelPlan& plan)
      : graph_(graph),
        request_(request),
        plan_(plan),
        boxes_(graph.nodes().size()),
        below_(graph.nodes().size()) {
    host_ = graph.node(request.members[0]).host;
    for (NodeId id = 0; id < graph.nodes().size(); ++id) {
      if (graph.node(id).host != host_) continue;
      if (graph.node(id).parent != kNoNode) below_[graph.node(id).parent].push_back(id);
      hasNvlink_ |= std::ranges::any_of(graph.node(id).links,
                                        [](const auto& link) { return link.type == LinkType::nvlink; });
    }
    for (const LinkLoad& load : linkLoads(graph, paths, request, plan.rings)) {
      float& share = shares_[std::minmax(load.from, load.to)];
      share = std::max(share, load.bandwidth < kLocalBandwidth ? load.load / load.bandwidth : 0);
    }
    classify();
  }

  std::string draw(const std::string& title) {
    place();
    for (const NodeId cpu : ofHost(NodeType::cpu)) drawTree(cpu);
    drawSockets();
    drawNvlinks();
    drawRings();
    drawTitle(title);
    drawLegend();
    drawNotes();
    return svg_.finish(std::max(widest_ + kMargin, 900.0), notesBottom_ + kMargin);
  }

 private:
  std::vector<NodeId> ofHost(NodeType type) const {
    std::vector<NodeId> nodes = graph_.all(type);
    std::erase_if(nodes, [this](NodeId id) { return graph_.node(id).host != host_; });
    return nodes;
  }
  bool isLeaf(NodeId id) const {
    const NodeType type = graph_.node(id).type;
    return type == NodeType::gpu || type == NodeType::nic || (type == NodeType::pci && below_[id].empty());
  }
  std::string label(NodeId id) const { return printableText(graph_.label(id)); }

  // ---- places ----

  int depthOf(NodeId id) const {
    int depth = 0;
    for (const NodeId child : below_[id])
      if (!isLeaf(child)) depth = std::max(depth, 1 + depthOf(child));
    return depth;
  }

  void place() {
    int levels = 0;
    for (const NodeId cpu : ofHost(NodeType::cpu)) levels = std::max(levels, depthOf(cpu));
    leafTop_ = kCpuTop + kCpuHeight + kLevel * levels + 48;
    double x = kMargin;
    for (const NodeId cpu : ofHost(NodeType::cpu)) {
      if (x > kMargin && x + 60 > kRowWidth) {
        x = kMargin;
        ++rows_;
      }
      right_ = x;
      placeNode(cpu, 0);
      rowOf_[cpu] = rows_;
      x = right_ + 40;
      widest_ = std::max(widest_, right_);
    }
    leafBottom_ = kCpuTop + kCpuHeight;
    for (const Box& box : boxes_) leafBottom_ = std::max(leafBottom_, box.bottom());
    // GPUs reach down to where the tallest card ends: rings run below all of them.
    for (const NodeId gpu : ofHost(NodeType::gpu)) boxes_[gpu].height = leafBottom_ - boxes_[gpu].y;
    zoneBottom_ = leafBottom_ + (hasNvlink_ ? kNvlinkZone : kPlainZone);
    rowHeight_ = zoneBottom_ + kSwitchHeight + 50 - kCpuTop;
    for (NodeId id = 0; id < boxes_.size(); ++id)
      if (const NodeId cpu = graph_.cpuOf(id); cpu != kNoNode) boxes_[id].y += rowHeight_ * rowOf_[cpu];
  }

  void placeNode(NodeId id, int level) {
    Box& box = boxes_[id];
    if (isLeaf(id)) {
      const NodeType type = graph_.node(id).type;
      box.x = right_;
      box.y = leafTop_;
      box.width = type == NodeType::gpu ? kGpuWidth : type == NodeType::nic ? kNicWidth : kOtherWidth;
      const double ports = static_cast<double>(below_[id].size());
      box.height = type == NodeType::gpu ? kGpuHeight : kPortNameHeight + kPortHeight * ports;
      for (size_t i = 0; i < below_[id].size(); ++i)
        boxes_[below_[id][i]] = {box.x + 4,
                                 box.y + kPortNameHeight + kPortHeight * static_cast<double>(i) - 2,
                                 box.width - 8, kPortHeight - 3};
      right_ += box.width + kGap;
      return;
    }
    const double left = right_;
    for (const NodeId child : below_[id]) placeNode(child, level + 1);
    if (right_ == left) right_ += 180;  // a NUMA node without devices
    box.x = left;
    box.width = right_ - kGap - left;
    box.y = kCpuTop + (level == 0 ? 0 : kCpuHeight + kLevel * level - kSwitchHeight);
    box.height = level == 0 ? kCpuHeight : kSwitchHeight;
  }

  // ---- what there is ----

  float shareOf(NodeId a, NodeId b) const {
    const auto share = shares_.find(std::minmax(a, b));
    return share == shares_.end() ? 0 : share->second;
  }
  const HardwareLink* linkOf(NodeId from, NodeId to) const {
    for (const HardwareLink& link : graph_.node(from).links)
      if (link.to == to) return &link;
    return nullptr;
  }
  static double thickness(float bandwidth) { return std::clamp(std::sqrt(bandwidth) * 0.55, 1.0, 9.0); }

  void drawTree(NodeId id) {
    const Box& box = boxes_[id];
    for (const NodeId child : below_[id]) {
      const Box& under = boxes_[child];
      if (const HardwareLink* link = linkOf(child, id)) {
        svg_.line(under.middle(), box.bottom(), under.middle(), under.y, loadColour(shareOf(child, id)),
                  thickness(link->bandwidth));
        if (link->bandwidth < kLocalBandwidth)
          svg_.text(under.middle() + 6, under.y - 6, fmt::format("{:g}", link->bandwidth),
                    {.size = 10, .fill = "#555"});
      }
      if (!isLeaf(child))
        drawTree(child);
      else
        drawLeaf(child);
    }
    const Node& node = graph_.node(id);
    if (node.type == NodeType::cpu) {
      svg_.box(box.x, box.y, box.width, box.height, "#dbe7f3", "#5b7a99");
      std::string more;
      if (!node.cpuMask.empty()) more = "CPUs " + cpusText(id);
      if (!node.vendor.empty()) more += (more.empty() ? "" : ", ") + printableText(node.vendor);
      svg_.text(box.middle(), box.y + (more.empty() ? 27 : 19), label(id),
                {.size = 14, .bold = true, .centred = true});
      svg_.text(box.middle(), box.y + 35, fitted(more, box.width),
                {.size = 10, .fill = "#555", .centred = true});
    } else {
      svg_.box(box.x, box.y, box.width, box.height, "#efefef", "#999");
      svg_.text(box.middle(), box.y + 17, fitted(label(id), box.width),
                {.size = 10, .fill = "#444", .centred = true});
    }
  }

  std::string cpusText(NodeId id) const {
    const auto cpus = parseCpuMask(graph_.node(id).cpuMask);
    return cpus ? cpuListText(*cpus) : "?";
  }

  void drawLeaf(NodeId id) {
    const Box& box = boxes_[id];
    const Node& node = graph_.node(id);
    if (node.type == NodeType::gpu) {
      svg_.box(box.x, box.y, box.width, box.height, "#e3f0d8", "#5f8f3a");
      svg_.text(box.middle(), box.y + box.height / 2 - 3, label(id),
                {.size = 14, .bold = true, .centred = true});
      std::string more = node.sm > 0 ? fmt::format("sm {}", node.sm) : "";
      if (node.rank >= 0) more += fmt::format("{}rank {}", more.empty() ? "" : ", ", node.rank);
      svg_.text(box.middle(), box.y + box.height / 2 + 13, more,
                {.size = 10, .fill = "#555", .centred = true});
      return;
    }
    const bool isNic = node.type == NodeType::nic;
    svg_.box(box.x, box.y, box.width, box.height, isNic ? "#fdf3dc" : "#f7f7f7", isNic ? "#b8923a" : "#bbb");
    const std::string name =
        isNic ? "NIC " + (node.busId == BusId{} ? "" : node.busId.text().substr(5)) : "device";
    svg_.text(box.middle(), box.y + 15, name, {.size = 10, .fill = "#666", .centred = true});
    for (const NodeId net : below_[id]) drawPort(net, id);
  }

  void drawPort(NodeId net, NodeId nic) {
    const Box& box = boxes_[net];
    const HardwareLink* link = linkOf(net, nic);
    const float share = shareOf(net, nic);
    svg_.box(box.x, box.y, box.width, box.height, share > 0 ? "#fff" : "#fdf3dc", loadColour(share),
             share > 0 ? 2.5 : 1);
    svg_.text(box.middle(), box.y + 13,
              fitted(fmt::format("{} {:g}", label(net), link ? link->bandwidth : 0), box.width),
              {.size = 10.5, .bold = true, .centred = true});
    std::string in, out;
    for (size_t c = 0; c < plan_.rings.channels.size(); ++c) {
      const Channel& channel = plan_.rings.channels[c];
      if (channel.netIn == net) in += fmt::format("{}{}", in.empty() ? "" : ",", c);
      if (channel.netOut == net) out += fmt::format("{}{}", out.empty() ? "" : ",", c);
    }
    if (in.empty() && out.empty()) return;
    const std::string text =
        in == out ? "ring " + in
                  : fmt::format("in {} out {}", in.empty() ? "-" : in, out.empty() ? "-" : out);
    svg_.text(box.middle(), box.y + 26, fitted(text, box.width),
              {.size = 9.5, .fill = "#444", .centred = true});
  }

  void drawSockets() {
    const std::vector<NodeId> cpus = ofHost(NodeType::cpu);
    for (size_t i = 0; i + 1 < cpus.size(); ++i) {
      const HardwareLink* link = linkOf(cpus[i], cpus[i + 1]);
      if (link == nullptr || rowOf_.at(cpus[i]) != rowOf_.at(cpus[i + 1])) continue;
      const Box &a = boxes_[cpus[i]], &b = boxes_[cpus[i + 1]];
      const double y = a.y + a.height / 2;
      svg_.line(a.x + a.width, y, b.x, y, loadColour(shareOf(cpus[i], cpus[i + 1])),
                thickness(link->bandwidth));
      svg_.text((a.x + a.width + b.x) / 2, y - 10, fmt::format("SYS {:g}", link->bandwidth),
                {.size = 10, .fill = "#555", .centred = true});
    }
    if (cpus.size() > 2)
      svg_.text(kMargin, kCpuTop - 8,
                "All NUMA nodes are connected to each other; only neighbours' links are drawn.",
                {.size = 10, .fill = "#777"});
  }

  void drawNvlinks() {
    const std::vector<NodeId> gpus = ofHost(NodeType::gpu), switches = ofHost(NodeType::nvswitch);
    for (const NodeId nvswitch : switches) drawNvswitch(nvswitch, gpus);
    for (const NodeId gpu : gpus)
      for (const HardwareLink& link : graph_.node(gpu).links) {
        if (link.type != LinkType::nvlink || graph_.node(link.to).type != NodeType::gpu || link.to < gpu)
          continue;
        const Arc arc = arcOf(boxes_[gpu].middle(), boxes_[link.to].middle(), boxes_[gpu].bottom(), 0);
        svg_.arc(arc, loadColour(shareOf(gpu, link.to)), thickness(link.bandwidth), 0.45, false);
        svg_.text(arc.middle(), arc.lowest() + 12, fmt::format("{:g}", link.bandwidth),
                  {.size = 9, .fill = "#777", .centred = true});
      }
  }

  void drawNvswitch(NodeId nvswitch, const std::vector<NodeId>& gpus) {
    for (int row = 0; row <= rows_; ++row) {
      const double y = zoneBottom_ + rowHeight_ * row;
      double left = 1e9, right = 0;
      for (const NodeId gpu : gpus) {
        const HardwareLink* link = linkOf(gpu, nvswitch);
        if (rowOf_.at(graph_.cpuOf(gpu)) != row) continue;
        left = std::min(left, boxes_[gpu].x);
        right = std::max(right, boxes_[gpu].x + kGpuWidth);
        if (link == nullptr) continue;
        const double x = boxes_[gpu].middle();
        svg_.line(x, boxes_[gpu].bottom(), x, y, loadColour(shareOf(gpu, nvswitch)),
                  thickness(link->bandwidth), 0.45);
        svg_.text(x + 7, y - 6, fmt::format("{:g}", link->bandwidth), {.size = 10, .fill = "#555"});
      }
      if (right < left) continue;
      svg_.box(left, y, right - left, kSwitchHeight, "#d5ead9", "#3a8f5b");
      svg_.text((left + right) / 2, y + 17, rows_ > 0 ? "NVSwitch, the same in all rows" : "NVSwitch",
                {.size = 12, .bold = true, .centred = true});
    }
  }

  // ---- rings ----

  void classify() {
    std::map<std::vector<int32_t>, size_t> known;
    for (size_t c = 0; c < plan_.rings.channels.size(); ++c) {
      std::vector<int32_t> order = plan_.rings.channels[c].order;
      std::rotate(order.begin(), std::ranges::min_element(order), order.end());
      const auto [entry, isNew] = known.emplace(order, classes_.size());
      if (isNew) classes_.emplace_back();
      RingClass& ring = classes_[entry->second];
      ring.channels.push_back(c);
      const Channel& channel = plan_.rings.channels[c];
      for (size_t i = 0; i + 1 < channel.order.size(); ++i)
        ++ring.steps[{channel.order[i], channel.order[i + 1]}];
      if (channel.netIn == kNoNode && channel.order.size() > 1)
        ++ring.steps[{channel.order.back(), channel.order.front()}];
    }
  }

  /// From one place to another below (or above) a line; the farther, the deeper.
  Arc arcOf(double from, double to, double y, size_t lane) const {
    const double zone = zoneBottom_ - leafBottom_;
    const double far = std::abs(to - from) / std::max(1.0, widest_ - kMargin);
    const double depth = std::min(zone * 1.15, 34 + far * zone) + 7 * static_cast<double>(lane);
    return {from, to, y, depth};
  }

  void drawRings() {
    for (size_t k = 0; k < classes_.size() && k < kColours.size(); ++k)
      for (const auto& [step, count] : classes_[k].steps) {
        const Box& a = boxes_[request_.members[static_cast<size_t>(step.first)]];
        const Box& b = boxes_[request_.members[static_cast<size_t>(step.second)]];
        if (&a == &b) continue;
        if (a.y != b.y) {
          drawJump(a, b, step, k);
          continue;
        }
        const bool forwards = a.x < b.x;
        // Side by side: away to one side, arrivals on the other.
        const double shift = (forwards ? 8 : 20) + 3 * static_cast<double>(k % 4);
        const double from = a.middle() + (forwards ? shift : -shift),
                     to = b.middle() + (forwards ? -shift : shift);
        const Arc arc = arcOf(from, to, std::max(a.bottom(), b.bottom()), k);
        svg_.arc(arc, kColours[k], std::min(5.0, 1.6 + 0.15 * count), 0.95, true);
      }
  }

  /// A step to another row: where it goes, and where it comes from.
  void drawJump(const Box& a, const Box& b, std::pair<int32_t, int32_t> step, size_t k) {
    const double depth = 30 + 7 * static_cast<double>(k);
    const auto name = [&](int32_t member) { return label(request_.members[static_cast<size_t>(member)]); };
    svg_.line(a.middle() + 8, a.bottom(), a.middle() + 8, a.bottom() + depth, kColours[k], 3);
    svg_.text(a.middle() + 13, a.bottom() + depth, "to " + name(step.second),
              {.size = 10, .fill = kColours[k]});
    svg_.arrow(b.middle() - 8, b.bottom(), depth, kColours[k], 3);
    svg_.text(b.middle() - 40, b.bottom() + depth + 12, "from " + name(step.first),
              {.size = 10, .fill = kColours[k]});
  }

  // ---- words ----

  void drawTitle(const std::string& title) {
    svg_.text(kMargin, 34, printableText(title), {.size = 19, .bold = true});
    const ChannelSet& rings = plan_.rings;
    std::string text =
        fmt::format("Rings: {} channel{} of {:.4g} GB/s, {:.4g} GB/s in all", rings.channels.size(),
                    rings.channels.size() == 1 ? "" : "s", rings.rate(), rings.total());
    if (request_.members.size() > 1) text += fmt::format(", {} between ranks", pathTypeName(rings.typeIntra));
    if (rings.hasPorts()) text += fmt::format(", {} to the network", pathTypeName(rings.typeInter));
    if (request_.members.size() == 1 && !rings.hasPorts()) text = "One rank: nothing to move";
    svg_.text(kMargin, 60, text, {.size = 14});
    if (rings.bottleneck.to != kNoNode)
      svg_.text(kMargin, 82, "Limited by " + bottleneckText(graph_, rings.bottleneck),
                {.size = 14, .bold = true, .fill = loadColour(1)});
  }

  void drawLegend() {
    const double y =
        rowHeight_ * rows_ + zoneBottom_ + (ofHost(NodeType::nvswitch).empty() ? 20 : kSwitchHeight + 40);
    svg_.text(kMargin, y, "Numbers: GB/s. Share of a link that the rings use:", {.size = 11, .fill = "#555"});
    double x = kMargin + 300;
    for (const auto& [share, name] :
         {std::pair(0.f, "none"), {0.3f, "some"}, {0.7f, "much"}, {1.f, "all of it"}}) {
      svg_.line(x, y - 4, x + 34, y - 4, loadColour(share), 5);
      svg_.text(x + 40, y, name, {.size = 11, .fill = "#555"});
      x += 105;
    }
    notesBottom_ = y + 10;
  }

  void drawNotes() {
    double y = notesBottom_ + 16;
    for (size_t k = 0; k < classes_.size(); ++k) {
      if (k == kColours.size()) {
        svg_.text(kMargin, y, fmt::format("and {} other rings, which are not drawn", classes_.size() - k),
                  {.size = 12});
        y += 20;
        break;
      }
      const RingClass& ring = classes_[k];
      svg_.line(kMargin, y - 4, kMargin + 30, y - 4, kColours[k], 4);
      std::string text =
          fmt::format("{} ring{}: ", ring.channels.size(), ring.channels.size() == 1 ? "" : "s");
      const std::vector<int32_t>& order = plan_.rings.channels[ring.channels[0]].order;
      constexpr size_t kShown = 16;
      for (size_t i = 0; i < order.size() && i < kShown; ++i)
        text += (i > 0 ? " > " : "") + label(request_.members[static_cast<size_t>(order[i])]);
      if (order.size() > kShown) text += fmt::format(" > and {} more", order.size() - kShown);
      const auto first = [&](size_t c) { return plan_.rings.channels[c].order.front(); };
      if (std::ranges::any_of(ring.channels, [&](size_t c) { return first(c) != order.front(); }))
        text += ", each beginning at its own port's GPU";
      svg_.text(kMargin + 38, y, text, {.size = 12});
      y += 20;
    }
    const ChannelSet& trees = plan_.trees;
    svg_.text(kMargin, y,
              fmt::format("Trees: {} of {:.4g} GB/s, {:.4g} GB/s in all; not drawn", trees.channels.size(),
                          trees.rate(), trees.total()),
              {.size = 12, .fill = "#555"});
    notesBottom_ = y;
  }

  const Graph& graph_;
  const SearchRequest& request_;
  const ChannelPlan& plan_;
  int32_t host_ = 0;
  std::vector<Box> boxes_;
  std::vector<std::vector<NodeId>> below_;
  std::map<std::pair<NodeId, NodeId>, float> shares_;  // of a link's capacity, the fuller direction
  std::vector<RingClass> classes_;
  bool hasNvlink_ = false;
  std::map<NodeId, int> rowOf_;  // by NUMA node: large machines take several rows
  int rows_ = 0;                 // the last one
  double widest_ = 0, rowHeight_ = 0;
  double leafTop_ = 0, leafBottom_ = 0, zoneBottom_ = 0, right_ = 0, notesBottom_ = 0;
  Svg svg_;
};

}  // namespace

std::string pictureSvg(const Graph& graph, const Paths& paths, const SearchRequest& request,
                       const ChannelPlan& plan, const std::string& title) {
  return Picture(graph, paths, request, plan).draw(title);
}

}  // namespace tutti::topo
