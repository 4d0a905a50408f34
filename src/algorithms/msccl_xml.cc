#include "algorithms/msccl_xml.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <pugixml.hpp>

#include "base/xml_element.h"

namespace tutti {
namespace {

/// Elements are named in messages by these of their attributes.
constexpr std::array kIdentifying = {"s", "id"};

using Element = XmlElement;

std::optional<Collective> collectiveOf(std::string_view name) {
  if (name == "allreduce") return Collective::allReduce;
  if (name == "allgather") return Collective::allGather;
  if (name == "reduce_scatter" || name == "reducescatter") return Collective::reduceScatter;
  if (name == "alltoall") return Collective::allToAll;
  return std::nullopt;
}

std::optional<MscclStep::Type> typeOf(std::string_view name) {
  constexpr std::array<std::string_view, 9> kNames = {"s",    "r",   "rcs", "rrs", "rrc",
                                                      "rrcs", "cpy", "re",  "nop"};
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<MscclStep::Type>(found - kNames.begin());
}

bool receivesMessage(MscclStep::Type type) {
  using enum MscclStep::Type;
  return type == r || type == rcs || type == rrs || type == rrc || type == rrcs;
}
bool sendsMessage(MscclStep::Type type) {
  using enum MscclStep::Type;
  return type == s || type == rcs || type == rrs || type == rrcs;
}

int32_t chunksOf(const MscclGpu& gpu, char buffer) {
  return buffer == 'i' ? gpu.inputChunks : buffer == 'o' ? gpu.outputChunks : gpu.scratchChunks;
}

Status parseBuffer(const Element& element, const char* bufferName, const char* offsetName,
                   const MscclGpu& gpu, int32_t count, char* buffer, int32_t* offset) {
  TUTTI_ASSIGN(const std::string_view letter, element.string(bufferName));
  if (letter != "i" && letter != "o" && letter != "s")
    return element.error("attribute {}=\"{}\" is none of i, o, s", bufferName, letter.substr(0, 20));
  *buffer = letter[0];
  TUTTI_TRY(element.number<int32_t>(offsetName, 0, kMscclMaxChunks, offset));
  const int32_t chunks = chunksOf(gpu, *buffer);
  if (*offset + count > chunks)
    return element.error("attribute {}=\"{}\" with cnt {} leaves buffer {} of {} chunks", offsetName, *offset,
                         count, letter, chunks);
  return Status::ok();
}

Status parseStep(const Element& element, const MscclGpu& gpu, const MscclBlock& block, MscclStep* step) {
  static constexpr std::array kAllowed = {"s",      "type", "srcbuf", "srcoff", "dstbuf",
                                          "dstoff", "cnt",  "depid",  "deps",   "hasdep"};
  TUTTI_TRY(element.onlyAttributes(kAllowed));
  TUTTI_TRY(element.children(nullptr, 0).status());
  TUTTI_ASSIGN(const std::string_view type, element.string("type"));
  const auto known = typeOf(type);
  if (!known) return element.error("attribute type=\"{}\" is no step type", type.substr(0, 20));
  step->type = *known;
  step->line = element.line();
  TUTTI_TRY(element.number<int32_t>("depid", -1, kMscclMaxBlocks, &step->dependsOnBlock));
  TUTTI_TRY(element.number<int32_t>("deps", -1, kMscclMaxSteps, &step->dependsOnStep));
  if ((step->dependsOnBlock < 0) != (step->dependsOnStep < 0))
    return element.error("attributes depid and deps must both be -1 or both name something");
  TUTTI_TRY(element.flag("hasdep", &step->hasDependents));
  if (step->type == MscclStep::Type::nop) return Status::ok();

  TUTTI_TRY(element.number<int32_t>("cnt", 1, kMscclMaxChunks, &step->count));
  // The buffer of the other side is named too, as a comment for the reader: it is not ours to check.
  if (readsMemory(step->type))
    TUTTI_TRY(parseBuffer(element, "srcbuf", "srcoff", gpu, step->count, &step->srcBuffer, &step->srcOffset));
  if (writesMemory(step->type))
    TUTTI_TRY(parseBuffer(element, "dstbuf", "dstoff", gpu, step->count, &step->dstBuffer, &step->dstOffset));
  if (receivesMessage(step->type) && block.recvPeer < 0)
    return element.error("type {} receives, but the thread block has no recv peer", type);
  if (sendsMessage(step->type) && block.sendPeer < 0)
    return element.error("type {} sends, but the thread block has no send peer", type);
  return Status::ok();
}

Status parseBlock(const Element& element, const MscclGpu& gpu, int32_t rank, int32_t ranks,
                  MscclBlock* block) {
  static constexpr std::array kAllowed = {"id", "send", "recv", "chan"};
  TUTTI_TRY(element.onlyAttributes(kAllowed));
  block->line = element.line();
  TUTTI_TRY(element.number<int32_t>("send", -1, ranks - 1, &block->sendPeer));
  TUTTI_TRY(element.number<int32_t>("recv", -1, ranks - 1, &block->recvPeer));
  if (block->sendPeer == rank) return element.error("attribute send=\"{}\" is the GPU itself", rank);
  if (block->recvPeer == rank) return element.error("attribute recv=\"{}\" is the GPU itself", rank);
  // A channel of MSCCL is one more connection between two GPUs: a port of ours.
  TUTTI_TRY(element.number<int32_t>("chan", 0, kVariableCountPort - 1, &block->channel));
  TUTTI_ASSIGN(const std::vector<Element> steps, element.children("step", kMscclMaxSteps));
  block->steps.resize(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    int32_t number = 0;
    TUTTI_TRY(steps[i].number<int32_t>("s", 0, kMscclMaxSteps, &number));
    if (number != static_cast<int32_t>(i)) return steps[i].error("attribute s: step {} is due", i);
    TUTTI_TRY(parseStep(steps[i], gpu, *block, &block->steps[i]));
  }
  return Status::ok();
}

Status checkDependencies(const std::vector<Element>& elements, const MscclGpu& gpu) {
  for (size_t b = 0; b < gpu.blocks.size(); ++b)
    for (const MscclStep& step : gpu.blocks[b].steps) {
      if (step.dependsOnBlock < 0) continue;
      const auto fail = [&](const std::string& reason) {
        return invalidUsage("{} (step at line {}): depid=\"{}\" deps=\"{}\": {}", elements[b].where(),
                            step.line, step.dependsOnBlock, step.dependsOnStep, reason);
      };
      if (static_cast<size_t>(step.dependsOnBlock) >= gpu.blocks.size())
        return fail("there is no such thread block");
      if (static_cast<size_t>(step.dependsOnBlock) == b)
        return fail("steps of a thread block run in order anyway");
      const MscclBlock& other = gpu.blocks[static_cast<size_t>(step.dependsOnBlock)];
      if (static_cast<size_t>(step.dependsOnStep) >= other.steps.size()) return fail("there is no such step");
      if (!other.steps[static_cast<size_t>(step.dependsOnStep)].hasDependents)
        return fail("that step says hasdep=\"0\"");
    }
  return Status::ok();
}

Status parseGpu(const Element& element, const MscclProgram& program, int32_t rank, int32_t ranks,
                MscclGpu* gpu) {
  static constexpr std::array kAllowed = {"id", "i_chunks", "o_chunks", "s_chunks"};
  TUTTI_TRY(element.onlyAttributes(kAllowed));
  TUTTI_TRY(element.number<int32_t>("i_chunks", 0, kMscclMaxChunks, &gpu->inputChunks));
  TUTTI_TRY(element.number<int32_t>("o_chunks", 0, kMscclMaxChunks, &gpu->outputChunks));
  TUTTI_TRY(element.number<int32_t>("s_chunks", 0, kMscclMaxChunks, &gpu->scratchChunks));
  const int32_t share = program.chunks / ranks;
  const int32_t input = program.collective == Collective::allGather ? share : program.chunks;
  const int32_t output = program.collective == Collective::reduceScatter ? share : program.chunks;
  // 0 says that the algorithm does not use the buffer (in place, one of the two is enough).
  if (gpu->inputChunks != 0 && gpu->inputChunks != input)
    return element.error("attribute i_chunks=\"{}\": nchunksperloop=\"{}\" makes it {}", gpu->inputChunks,
                         program.chunks, input);
  if (gpu->outputChunks != 0 && gpu->outputChunks != output)
    return element.error("attribute o_chunks=\"{}\": nchunksperloop=\"{}\" makes it {}", gpu->outputChunks,
                         program.chunks, output);
  TUTTI_ASSIGN(const std::vector<Element> blocks, element.children("tb", kMscclMaxBlocks));
  gpu->blocks.resize(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    int32_t id = 0;
    TUTTI_TRY(blocks[i].number<int32_t>("id", 0, kMscclMaxBlocks, &id));
    if (id != static_cast<int32_t>(i)) return blocks[i].error("attribute id: thread block {} is due", i);
    TUTTI_TRY(parseBlock(blocks[i], *gpu, rank, ranks, &gpu->blocks[i]));
  }
  return checkDependencies(blocks, *gpu);
}

Status parseHead(const Element& element, MscclProgram* program, int32_t* ranks) {
  TUTTI_ASSIGN(const std::string_view name, element.string("name"));
  program->name = name;
  if (program->name.empty() || program->name.size() > 100)
    return element.error("attribute name must have 1 .. 100 characters");
  TUTTI_ASSIGN(const std::string_view coll, element.string("coll"));
  const auto collective = collectiveOf(coll);
  if (!collective)
    return element.error("attribute coll=\"{}\" is none of allreduce, allgather, reduce_scatter, alltoall",
                         coll.substr(0, 40));
  program->collective = *collective;
  TUTTI_TRY(element.number<int32_t>("ngpus", 1, kMscclMaxRanks, ranks));
  int32_t channels = 0;
  TUTTI_TRY(element.number<int32_t>("nchannels", 1, kVariableCountPort, &channels));
  TUTTI_TRY(element.number<int32_t>("nchunksperloop", 1, kMscclMaxChunks, &program->chunks));
  if (program->collective != Collective::allReduce && program->chunks % *ranks != 0)
    return element.error("attribute nchunksperloop=\"{}\" is no multiple of ngpus=\"{}\"", program->chunks,
                         *ranks);
  TUTTI_TRY(element.flag("inplace", &program->inPlace));
  program->outOfPlace = !program->inPlace;
  if (element.has("outofplace")) TUTTI_TRY(element.flag("outofplace", &program->outOfPlace));
  if (!program->inPlace && !program->outOfPlace)
    return element.error("attributes inplace and outofplace are both 0: the algorithm is for no call");
  constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
  if (element.has("minBytes"))
    TUTTI_TRY(element.number<uint64_t>("minBytes", 0, kNoLimit, &program->minBytes));
  if (element.has("maxBytes"))
    TUTTI_TRY(element.number<uint64_t>("maxBytes", 0, kNoLimit, &program->maxBytes));
  return Status::ok();
}

}  // namespace

int32_t MscclProgram::parts() const {
  return collective == Collective::allReduce ? chunks : chunks / ranks();
}

Result<MscclProgram> parseMscclXml(std::string_view text, std::string_view fileName) {
  MscclProgram program;
  program.file = fileName;
  XmlDocument document;
  TUTTI_ASSIGN(const Element algo, document.load(text, fileName, "algo", kMscclMaxFileBytes, kIdentifying));
  int32_t ranks = 0;
  TUTTI_TRY(parseHead(algo, &program, &ranks));
  TUTTI_ASSIGN(const std::vector<Element> gpus, algo.children("gpu", ranks));
  if (gpus.size() != static_cast<size_t>(ranks))
    return algo.error("attribute ngpus=\"{}\", but {} <gpu> elements", ranks, gpus.size());
  program.gpus.resize(gpus.size());
  std::vector<bool> seen(gpus.size());
  for (const Element& element : gpus) {
    int32_t id = 0;
    TUTTI_TRY(element.number<int32_t>("id", 0, ranks - 1, &id));
    if (seen[static_cast<size_t>(id)]) return element.error("attribute id: a second GPU {}", id);
    seen[static_cast<size_t>(id)] = true;
    TUTTI_TRY(parseGpu(element, program, id, ranks, &program.gpus[static_cast<size_t>(id)]));
  }
  return program;
}

Result<MscclProgram> readMscclXml(const std::string& path) {
  TUTTI_ASSIGN(const std::string text, readXmlFile("algorithm file", path, kMscclMaxFileBytes));
  return parseMscclXml(text, path);
}

}  // namespace tutti
