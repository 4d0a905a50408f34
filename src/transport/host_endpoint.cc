#include "transport/host_endpoint.h"

#include <utility>

#include "base/log.h"

namespace tutti {

HostEndpoint::HostEndpoint(std::vector<PeerInfo> peers, int rank, const EndpointOptions& options,
                           HostGroup group, std::unique_ptr<MessageTransport> messages,
                           std::shared_ptr<FaultState> faults)
    : peers_(std::move(peers)),
      rank_(rank),
      options_(options),
      localRanks_(std::move(group.ranks)),
      hosts_(std::move(group.all)),
      localIndex_(peers_.size(), -1),
      directBuffers_(group.directBuffers),
      secret_(transportSecret(options)),
      faults_(std::move(faults)),
      segment_(std::move(group.segment)),
      memory_(std::move(group.memory)),
      memoryAddresses_(std::move(group.memoryAddresses)),
      messages_(std::move(messages)) {
  for (size_t i = 0; i < localRanks_.size(); ++i)
    localIndex_[static_cast<size_t>(localRanks_[i])] = static_cast<int>(i);
  const size_t connections = peers_.size() * static_cast<size_t>(options_.channels) * kEndpointPorts;
  senders_.resize(connections);
  receivers_.resize(connections);
  saidDirect_.resize(peers_.size());
}

bool HostEndpoint::sameProcess(int peer) const {
  const auto& mine = peers_[static_cast<size_t>(rank_)];
  return mapped(peer) && peers_[static_cast<size_t>(peer)].processToken == mine.processToken;
}

std::string HostEndpoint::transportName(int peer) const {
  if (!mapped(peer)) return "NET/Socket";
  return sameProcess(peer) && directBuffers_ ? "P2P/direct" : "SHM";
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

/// Once for each pair and channel, as NCCL does.
void HostEndpoint::logConnection(int from, int to, int channel, int port) const {
  if (port != 0 || from == to) return;
  const int peer = from == rank_ ? to : from;
  logInfo(Subsystem::init, "Channel {:02} : {} -> {} [{}] via {}{}", channel, from, to,
          from == rank_ ? "send" : "receive", transportName(peer), mapped(peer) ? "" : "/0");
}

Result<FifoSender*> HostEndpoint::sender(int peer, int channel, int port) {
  TUTTI_TRY(checkConnection(peer, channel, port));
  FifoSender*& known = senders_[connectionIndex(peer, channel, port)];
  if (known != nullptr) return known;
  if (mapped(peer)) {
    const int me = localIndex(rank_);
    const int other = localIndex(peer);
    known = &mappedSenders_.emplace_back(segment_->control(me, other, channel, port),
                                         segment_->slots(me, other, channel, port), options_.slotBytes,
                                         segment_->bell(other));
  } else {
    TUTTI_ASSIGN(known, messages_->sender(peer, channel, port));
  }
  logConnection(rank_, peer, channel, port);
  return known;
}

Result<FifoReceiver*> HostEndpoint::receiver(int peer, int channel, int port) {
  TUTTI_TRY(checkConnection(peer, channel, port));
  FifoReceiver*& known = receivers_[connectionIndex(peer, channel, port)];
  if (known != nullptr) return known;
  if (mapped(peer)) {
    const int me = localIndex(rank_);
    const int other = localIndex(peer);
    known = &mappedReceivers_.emplace_back(segment_->control(other, me, channel, port),
                                           segment_->slots(other, me, channel, port), options_.slotBytes,
                                           segment_->bell(other));
  } else {
    TUTTI_ASSIGN(known, messages_->receiver(peer, channel, port));
  }
  logConnection(peer, rank_, channel, port);
  return known;
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
  if (!directBuffers_) return {};
  if (memory_) return memory_->describe(pointer);
  BufferDescriptor descriptor;
  descriptor.address = reinterpret_cast<uint64_t>(pointer);
  return descriptor;
}

Result<std::byte*> HostEndpoint::mapPeerBuffer(int peer, const BufferDescriptor& buffer, Deadline deadline) {
  const PeerInfo& owner = peers_[static_cast<size_t>(peer)];
  if (!mapped(peer) || !directBuffers_)
    return invalidUsage("rank {}: buffers of rank {} (host {}) cannot be used directly: {}", rank_, peer,
                        owner.hostName,
                        mapped(peer) ? "NCCL_P2P_DISABLE is set" : "it shares no memory with us");
  if (!saidDirect_[static_cast<size_t>(peer)]) {
    saidDirect_[static_cast<size_t>(peer)] = true;
    // These take no channel's FIFO, which would have its own line. Once for each pair.
    logInfo(Subsystem::init, "Channel 00 : {} -> {} [buffers] via P2P/direct", peer, rank_);
  }
  if (sameProcess(peer)) return reinterpret_cast<std::byte*>(buffer.address);
  if (!memory_)
    return invalidUsage(
        "rank {}: buffers of rank {} (host {}) cannot be mapped: descriptors cannot be passed", rank_, peer,
        owner.hostName);
  return peerMemory_
      .map(owner, memoryAddresses_[static_cast<size_t>(peer)], secret_, buffer, deadline, faults_.get())
      .withContext("rank {}: map a peer's buffer", rank_);
}

Result<Endpoint::Mapping> HostEndpoint::mapForGood(int peer, const BufferDescriptor& buffer,
                                                   Deadline deadline) {
  if (!mapped(peer) || !directBuffers_ || (!sameProcess(peer) && !memory_))
    return invalidUsage("rank {}: buffers of rank {} cannot be mapped", rank_, peer);
  Mapping mapping;
  if (sameProcess(peer)) {
    mapping.address = reinterpret_cast<std::byte*>(buffer.address);
    return mapping;
  }
  // Its own cache: that of mapPeerBuffer() belongs to the thread that runs collectives, and forgets.
  auto own = std::make_shared<PeerMemory>();
  TUTTI_ASSIGN(mapping.address,
               own->map(peers_[static_cast<size_t>(peer)], memoryAddresses_[static_cast<size_t>(peer)],
                        secret_, buffer, deadline, faults_.get()));
  mapping.keep = std::move(own);
  return mapping;
}

}  // namespace tutti
