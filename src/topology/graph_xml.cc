#include "topology/graph_xml.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "base/xml_element.h"

namespace tutti {
namespace {

constexpr std::array kIdentifying = {"id", "dev"};
constexpr int32_t kMost = std::numeric_limits<int32_t>::max();

class Reader {
 public:
  Status readGraphs(const XmlElement& root, const XmlSource& source, std::vector<GraphDescription>* graphs) {
    source_ = &source;
    int32_t version = 1;
    if (root.has("version")) TUTTI_TRY(root.number<int32_t>("version", 0, kMost, &version));
    if (version != 1) return root.error("attribute version=\"{}\": only version 1 is known", version);
    return forChildren(root, [&](const XmlElement& child) {
      return child.name() == "graph" ? readGraph(child, &graphs->emplace_back()) : Status::ok();
    });
  }

 private:
  template <typename Read>
  Status forChildren(const XmlElement& element, const Read& read) {
    for (const pugi::xml_node node : element.node().children()) {
      const XmlElement child(node, *source_);
      if (node.type() != pugi::node_element) return element.error("text where only elements belong");
      if (++elements_ > kGraphXmlMaxElements)
        return child.error("more than {} elements", kGraphXmlMaxElements);
      TUTTI_TRY(read(child));
    }
    return Status::ok();
  }

  Status readGraph(const XmlElement& element, GraphDescription* graph) {
    graph->line = element.line();
    TUTTI_TRY(element.number<int32_t>("id", 0, kMost, &graph->id));
    TUTTI_TRY(element.number<int32_t>("pattern", 1, kMost, &graph->pattern));
    TUTTI_TRY(element.number<int32_t>("crossnic", 0, 2, &graph->crossNic));
    TUTTI_TRY(element.number<int32_t>("nchannels", 0, kMost, &graph->channelCount));
    TUTTI_TRY(speed(element, "speedintra", &graph->speedIntra));
    TUTTI_TRY(speed(element, "speedinter", &graph->speedInter));
    if (element.has("latencyinter")) TUTTI_TRY(speed(element, "latencyinter", &graph->latencyInter));
    TUTTI_TRY(type(element, "typeintra", &graph->typeIntra));
    TUTTI_TRY(type(element, "typeinter", &graph->typeInter));
    TUTTI_TRY(element.flag("samechannels", &graph->sameChannels));
    return forChildren(element, [&](const XmlElement& child) {
      return child.name() == "channel" ? readChannel(child, &graph->channels.emplace_back()) : Status::ok();
    });
  }

  Status readChannel(const XmlElement& element, GraphChannelDescription* channel) {
    channel->line = element.line();
    return forChildren(element, [&](const XmlElement& child) {
      const bool isGpu = child.name() == "gpu";
      if (!isGpu && child.name() != "net") return Status::ok();
      uint64_t dev = 0;
      TUTTI_TRY(child.numberOrHex<uint64_t>("dev", 0, UINT64_MAX, &dev));
      if (isGpu) {
        channel->gpus.push_back(dev);
      } else if (!channel->netIn) {
        channel->netIn = dev;
      } else if (!channel->netOut) {
        channel->netOut = dev;
      } else {
        return child.error("a third <net> in one channel");
      }
      return Status::ok();
    });
  }

  static Status speed(const XmlElement& element, const char* attribute, float* value) {
    TUTTI_ASSIGN(const std::string_view text, element.string(attribute));
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), *value);
    if (code != std::errc() || end != text.data() + text.size() || !std::isfinite(*value) || *value < 0 ||
        *value > 1e9f)
      return element.error("attribute {}=\"{}\" is no number from 0 to 1e9", attribute,
                           XmlElement::shorten(text));
    return Status::ok();
  }

  static Status type(const XmlElement& element, const char* attribute, PathType* value) {
    TUTTI_ASSIGN(const std::string_view text, element.string(attribute));
    for (auto candidate = PathType::loc;;
         candidate = static_cast<PathType>(static_cast<int>(candidate) + 1)) {
      *value = candidate;
      if (text == pathTypeName(candidate)) return Status::ok();
      if (candidate == PathType::dis) break;
    }
    return element.error("attribute {}=\"{}\" is no path type such as NVL, PIX or SYS", attribute,
                         XmlElement::shorten(text));
  }

  const XmlSource* source_ = nullptr;
  int32_t elements_ = 0;
};

}  // namespace

bool GraphDescription::operator==(const GraphDescription& other) const {
  const auto values = [](const GraphDescription& one) {
    return std::tie(one.id, one.pattern, one.crossNic, one.channelCount, one.speedIntra, one.speedInter,
                    one.latencyInter, one.typeIntra, one.typeInter, one.sameChannels, one.channels);
  };
  return values(*this) == values(other);
}

Result<std::vector<GraphDescription>> parseGraphXml(std::string_view text, std::string_view fileName) {
  XmlDocument document;
  TUTTI_ASSIGN(const XmlElement element,
               document.load(text, fileName, "graphs", kGraphXmlMaxBytes, kIdentifying));
  std::vector<GraphDescription> graphs;
  TUTTI_TRY(Reader().readGraphs(element, document.source(), &graphs));
  return graphs;
}

Result<std::vector<GraphDescription>> readGraphXml(const std::string& path) {
  TUTTI_ASSIGN(const std::string text, readXmlFile("graph file", path, kGraphXmlMaxBytes));
  return parseGraphXml(text, path);
}

std::string graphXmlText(const std::vector<GraphDescription>& graphs) {
  std::string text = graphs.empty() ? "<graphs version=\"1\"/>\n" : "<graphs version=\"1\">\n";
  for (const GraphDescription& graph : graphs) {
    text += fmt::format(
        R"(  <graph id="{}" pattern="{}" crossnic="{}" nchannels="{}" speedintra="{}" speedinter="{}" latencyinter="{}" typeintra="{}" typeinter="{}" samechannels="{:d}")",
        graph.id, graph.pattern, graph.crossNic, graph.channelCount, graph.speedIntra, graph.speedInter,
        graph.latencyInter, pathTypeName(graph.typeIntra), pathTypeName(graph.typeInter), graph.sameChannels);
    text += graph.channels.empty() ? "/>\n" : ">\n";
    for (const GraphChannelDescription& channel : graph.channels) {
      if (!channel.netIn && channel.gpus.empty()) {
        text += "    <channel/>\n";
        continue;
      }
      text += "    <channel>\n";
      if (channel.netIn) text += fmt::format("      <net dev=\"{}\"/>\n", *channel.netIn);
      for (const uint64_t gpu : channel.gpus) text += fmt::format("      <gpu dev=\"{}\"/>\n", gpu);
      if (channel.netOut) text += fmt::format("      <net dev=\"{}\"/>\n", *channel.netOut);
      text += "    </channel>\n";
    }
    if (!graph.channels.empty()) text += "  </graph>\n";
  }
  return graphs.empty() ? text : text + "</graphs>\n";
}

}  // namespace tutti
