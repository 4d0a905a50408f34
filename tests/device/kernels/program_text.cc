#include "device/kernels/program_text.h"

#include <algorithm>
#include <cstring>

namespace tutti::device {

Location placeIn(BufferKind buffer, Affine first, int32_t segments) {
  Location location;
  location.buffer = buffer;
  location.segments.first = first;
  location.segments.segments = segments;
  return location;
}

Location placeIn(BufferKind buffer, Affine first, int32_t segments, Affine rank) {
  Location location = placeIn(buffer, first, segments);
  location.ofPeer = 1;
  location.rank = rank;
  return location;
}

LaneText& LaneText::loop(int32_t iterations) {
  blocks_.push_back({static_cast<uint32_t>(steps_.size()), 0, iterations});
  return *this;
}

Step& LaneText::step(StepKind kind, int32_t pieces) {
  if (blocks_.empty()) loop(1);
  ++blocks_.back().stepCount;
  if (steps_.capacity() == 0) steps_.reserve(256);  // references stay valid
  Step& step = steps_.emplace_back();
  step.kind = kind;
  step.pieces = pieces;
  step.number = static_cast<uint32_t>(steps_.size());
  return step;
}

void LaneText::readsFrom(Step& step, Location source) {
  step.hasSource = 1;
  step.source = source;
  step.size = source.segments;
}
void LaneText::writesTo(Step& step, Location destination) {
  step.hasDestination = 1;
  step.destination = destination;
  if (!step.hasSource) step.size = destination.segments;
}

Step& LaneText::send(int32_t peer, Location source, int32_t pieces, uint16_t port) {
  Step& result = step(StepKind::send, pieces);
  readsFrom(result, source);
  sendsTo(result, peer, port);
  return result;
}
Step& LaneText::receive(int32_t peer, Location destination, int32_t pieces, uint16_t port) {
  Step& result = step(StepKind::recv, pieces);
  writesTo(result, destination);
  receivesFrom(result, peer, port);
  return result;
}

Step& LaneText::signal(std::vector<int32_t> ranks, uint16_t flag) {
  Step& result = step(StepKind::signal, 0);
  result.sourceTeam = addRanks(ranks);
  result.sourceTeamCount = static_cast<uint32_t>(ranks.size());
  result.flag = flag;
  return result;
}
Step& LaneText::wait(std::vector<int32_t> ranks, uint16_t flag) {
  Step& result = signal(std::move(ranks), flag);
  result.kind = StepKind::wait;
  return result;
}

void LaneText::sendsTo(Step& step, int32_t peer, uint16_t port) {
  step.sends = 1;
  step.sendLink = static_cast<uint32_t>(linkNumbers_.size());
  linkNumbers_.push_back(linkTo(peer, port, true));
}
void LaneText::receivesFrom(Step& step, int32_t peer, uint16_t port) {
  step.receives = 1;
  step.receiveLink = static_cast<uint32_t>(linkNumbers_.size());
  linkNumbers_.push_back(linkTo(peer, port, false));
}
void LaneText::receivesFromEach(Step& step, const std::vector<int32_t>& peers) {
  step.receives = 1;
  step.receiveVaries = 1;
  step.receiveLink = static_cast<uint32_t>(linkNumbers_.size());
  for (const int32_t peer : peers) linkNumbers_.push_back(linkTo(peer, 0, false));
}

void LaneText::readsTeam(Step& step, const std::vector<int32_t>& ranks) {
  step.sourceTeam = addRanks(ranks);
  step.sourceTeamCount = static_cast<uint32_t>(ranks.size());
  step.source.ofPeer = 1;
}
void LaneText::writesTeam(Step& step, const std::vector<int32_t>& ranks) {
  step.destinationTeam = addRanks(ranks);
  step.destinationTeamCount = static_cast<uint32_t>(ranks.size());
  step.destination.ofPeer = 1;
}

uint16_t LaneText::linkTo(int32_t peer, uint16_t port, bool sends) {
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i].peer == peer && links_[i].port == port && (links_[i].sends != 0) == sends)
      return static_cast<uint16_t>(i);
  }
  links_.push_back({peer, port, static_cast<uint8_t>(sends), 0});
  return static_cast<uint16_t>(links_.size() - 1);
}

uint32_t LaneText::addRanks(const std::vector<int32_t>& ranks) {
  const auto at = static_cast<uint32_t>(ranks_.size());
  ranks_.insert(ranks_.end(), ranks.begin(), ranks.end());
  return at;
}

ProgramText::ProgramText(int32_t rank, int32_t ranks) {
  head.rank = rank;
  head.ranks = ranks;
}

LaneText& ProgramText::lane() { return *lanes_.emplace_back(std::make_unique<LaneText>()); }

uint32_t ProgramText::mostLinks() const {
  size_t most = 0;
  for (const auto& lane : lanes_) most = std::max(most, lane->links_.size());
  return static_cast<uint32_t>(most);
}

namespace {

template <class T>
uint32_t append(std::vector<std::byte>& bytes, const std::vector<T>& values) {
  const size_t at = (bytes.size() + 15) / 16 * 16;
  bytes.resize(at + values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data() + at, values.data(), values.size() * sizeof(T));
  return static_cast<uint32_t>(at);
}
template <class T>
void addAll(std::vector<T>& all, const std::vector<T>& some) {
  all.insert(all.end(), some.begin(), some.end());
}

}  // namespace

std::vector<std::byte> ProgramText::bytes() const {
  std::vector<Lane> lanes;
  std::vector<Block> blocks;
  std::vector<Step> steps;
  std::vector<Link> links;
  std::vector<uint16_t> linkNumbers;
  std::vector<int32_t> ranks;
  for (const auto& text : lanes_) {
    lanes.push_back({static_cast<uint32_t>(blocks.size()), static_cast<uint32_t>(text->blocks_.size()),
                     static_cast<uint32_t>(links.size()), static_cast<uint32_t>(text->links_.size())});
    for (Block block : text->blocks_) {
      block.firstStep += static_cast<uint32_t>(steps.size());
      blocks.push_back(block);
    }
    for (Step step : text->steps_) {
      step.receiveLink += static_cast<uint32_t>(linkNumbers.size());
      step.sendLink += static_cast<uint32_t>(linkNumbers.size());
      step.sourceTeam += static_cast<uint32_t>(ranks.size());
      step.destinationTeam += static_cast<uint32_t>(ranks.size());
      steps.push_back(step);
    }
    addAll(links, text->links_);
    addAll(linkNumbers, text->linkNumbers_);
    addAll(ranks, text->ranks_);
  }
  std::vector<std::byte> result(sizeof(Program));
  Program program = head;
  program.laneCount = static_cast<uint32_t>(lanes.size());
  program.stepCount = static_cast<uint32_t>(steps.size());
  program.lanesAt = append(result, lanes);
  program.blocksAt = append(result, blocks);
  program.stepsAt = append(result, steps);
  program.linksAt = append(result, links);
  program.linkNumbersAt = append(result, linkNumbers);
  program.ranksAt = append(result, ranks);
  program.bytes = result.size();
  std::memcpy(result.data(), &program, sizeof program);
  return result;
}

}  // namespace tutti::device
