// NCCL's graph XML (NCCL_GRAPH_FILE, NCCL_GRAPH_DUMP_FILE): the channels of one host, in and out.
//
//   <graphs version="1">
//     <graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="20" speedinter="20" latencyinter="0"
//            typeintra="NVL" typeinter="PIX" samechannels="1">
//       <channel>
//         <net dev="0"/> <gpu dev="0"/> <gpu dev="1"/> <net dev="0"/>       in, the order of the GPUs, out
//
// id 0 is the ring, 1 the tree; NCCL's others (2 CollNet, 3 NVLS) are kept as they are and used for nothing.
// `dev` is a GPU's or a network's number on the host; NCCL's newer releases put the host's number into the
// upper eight bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "topology/search.h"

namespace tutti {

struct GraphChannelDescription {
  std::optional<uint64_t> netIn, netOut;  // the first <net>, the second
  std::vector<uint64_t> gpus;
  int32_t line = 0;  // of the file; not compared
  bool operator==(const GraphChannelDescription& other) const {
    return netIn == other.netIn && netOut == other.netOut && gpus == other.gpus;
  }
};

/// <graph>.
struct GraphDescription {
  int32_t id = 0;
  int32_t pattern = 4;
  int32_t crossNic = 0;      // 2 in dumps of newer releases: crossed because that is faster
  int32_t channelCount = 0;  // what the file says; NCCL takes the number of <channel>s instead, and so do we
  float speedIntra = 0;      // GB/s a channel
  float speedInter = 0;
  float latencyInter = 0;  // us
  PathType typeIntra = PathType::loc;
  PathType typeInter = PathType::loc;
  bool sameChannels = false;
  std::vector<GraphChannelDescription> channels;
  int32_t line = 0;  // of the file; not compared
  bool operator==(const GraphDescription& other) const;
};

/// What is accepted of a file.
constexpr size_t kGraphXmlMaxBytes = 16u << 20;
constexpr int32_t kGraphXmlMaxElements = 262144;
constexpr int32_t kGraphRing = 0, kGraphTree = 1;  // ids

/// Parses the text of a file; `fileName` is for messages only. Errors (ncclInvalidUsage) name file, line,
/// element, attribute and reason. Elements and attributes that nobody knows are skipped; latencyinter may be
/// missing.
Result<std::vector<GraphDescription>> parseGraphXml(std::string_view text, std::string_view fileName);
Result<std::vector<GraphDescription>> readGraphXml(const std::string& path);
/// In the form of NCCL's dumps.
std::string graphXmlText(const std::vector<GraphDescription>& graphs);

/// A plan as a file says it.
std::vector<GraphDescription> describePlan(const Graph& graph, const SearchRequest& request,
                                           const ChannelPlan& plan);
/// A file as a plan for these members: rings of graph 0, trees of graph 1, with the file's rates and types. A
/// graph that the file does not have keeps what `plan` has. Errors name file, line and what the host does not
/// have, a member that is missing or stands twice, ports that are missing where hosts must be crossed.
Status applyGraphXml(const std::vector<GraphDescription>& graphs, std::string_view fileName,
                     const Graph& graph, const Paths& paths, const SearchRequest& request, ChannelPlan* plan);

}  // namespace tutti
