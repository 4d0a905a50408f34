#include "transport/host_endpoint.h"

#include <utility>

namespace tutti {

HostEndpoint::HostEndpoint(std::vector<PeerInfo> peers, int rank, const EndpointOptions& options,
                           std::vector<int> localRanks, std::shared_ptr<HostSegment> segment,
                           std::shared_ptr<FaultState> faults)
    : peers_(std::move(peers)),
      rank_(rank),
      options_(options),
      localRanks_(std::move(localRanks)),
      localIndex_(peers_.size(), -1),
      segment_(std::move(segment)),
      faults_(std::move(faults)) {
  for (size_t i = 0; i < localRanks_.size(); ++i)
    localIndex_[static_cast<size_t>(localRanks_[i])] = static_cast<int>(i);
  const size_t connections = peers_.size() * static_cast<size_t>(options_.channels) * kEndpointPorts;
  senders_.resize(connections);
  receivers_.resize(connections);
}

bool HostEndpoint::sameProcess(int peer) const {
  const auto& mine = peers_[static_cast<size_t>(rank_)];
  return peers_[static_cast<size_t>(peer)].processToken == mine.processToken;
}

std::string HostEndpoint::transportName(int peer) const {
  if (!mapped(peer)) return "NET/Socket";
  return sameProcess(peer) ? "P2P/direct" : "SHM";
}

Status HostEndpoint::checkConnection(int peer, int channel, int port) const {
  if (peer < 0 || peer >= ranks() || channel < 0 || channel >= options_.channels || port < 0 ||
      port >= kEndpointPorts)
    return internalError(
        "no connection to rank {} on channel {} port {}: there are {} ranks, {} channels, {} ports", peer,
        channel, port, ranks(), options_.channels, kEndpointPorts);
  return Status::ok();
}

size_t HostEndpoint::connectionIndex(int peer, int channel, int port) const {
  return (static_cast<size_t>(peer) * static_cast<size_t>(options_.channels) + static_cast<size_t>(channel)) *
             kEndpointPorts +
         static_cast<size_t>(port);
}

Result<FifoSender*> HostEndpoint::sender(int peer, int channel, int port) {
  TUTTI_TRY(checkConnection(peer, channel, port));
  auto& slot = senders_[connectionIndex(peer, channel, port)];
  if (!slot) {
    if (!mapped(peer)) return internalError("rank {}: no transport to rank {}", rank_, peer);
    const int me = localIndex(rank_);
    const int other = localIndex(peer);
    slot = std::make_unique<FifoSender>(segment_->control(me, other, channel, port),
                                        segment_->slots(me, other, channel, port), options_.slotBytes,
                                        segment_->bell(other));
  }
  return slot.get();
}

Result<FifoReceiver*> HostEndpoint::receiver(int peer, int channel, int port) {
  TUTTI_TRY(checkConnection(peer, channel, port));
  auto& slot = receivers_[connectionIndex(peer, channel, port)];
  if (!slot) {
    if (!mapped(peer)) return internalError("rank {}: no transport to rank {}", rank_, peer);
    const int me = localIndex(rank_);
    const int other = localIndex(peer);
    slot = std::make_unique<FifoReceiver>(segment_->control(other, me, channel, port),
                                          segment_->slots(other, me, channel, port), options_.slotBytes,
                                          segment_->bell(other));
  }
  return slot.get();
}

std::atomic<uint64_t>* HostEndpoint::flag(int from, int to, int channel, int flag) {
  if (!mapped(from) || !mapped(to)) return nullptr;
  return segment_->flag(localIndex(from), localIndex(to), channel, flag);
}

std::byte* HostEndpoint::scratch(int rank, int channel) {
  return mapped(rank) ? segment_->scratch(localIndex(rank), channel) : nullptr;
}

Doorbell* HostEndpoint::bell(int rank) { return mapped(rank) ? segment_->bell(localIndex(rank)) : nullptr; }

void HostEndpoint::post(uint64_t sequence, const BoardEntry& entry) {
  BoardCell* cell = segment_->board(localIndex(rank_), sequence);
  cell->entry = entry;
  cell->sequence.store(sequence, std::memory_order_release);  // release: the entry is written before
  for (size_t i = 0; i < localRanks_.size(); ++i) segment_->bell(static_cast<int>(i))->ring();
}

const BoardEntry* HostEndpoint::read(int rank, uint64_t sequence) const {
  if (!mapped(rank)) return nullptr;
  const BoardCell* cell = segment_->board(localIndex(rank), sequence);
  return cell->sequence.load(std::memory_order_acquire) == sequence ? &cell->entry : nullptr;
}

BufferDescriptor HostEndpoint::describe(const void* pointer, size_t) const {
  BufferDescriptor descriptor;
  descriptor.address = reinterpret_cast<uint64_t>(pointer);
  return descriptor;
}

Result<std::byte*> HostEndpoint::mapPeerBuffer(int peer, const BufferDescriptor& buffer, Deadline) {
  if (sameProcess(peer)) return reinterpret_cast<std::byte*>(buffer.address);
  return invalidUsage("rank {}: the buffer of rank {} is not in a memory file", rank_, peer);
}

}  // namespace tutti
