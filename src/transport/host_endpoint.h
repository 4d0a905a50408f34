// The Endpoint of ranks that run on CPUs: mapped connections over the host segment, message connections for
// everyone else.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transport/endpoint.h"
#include "transport/host_group.h"
#include "transport/host_segment.h"
#include "transport/memory_service.h"
#include "transport/message_transport.h"

namespace tutti {

class HostEndpoint final : public Endpoint {
 public:
  /// `messages` may be null when the group holds all ranks.
  HostEndpoint(std::vector<PeerInfo> peers, int rank, const EndpointOptions& options, HostGroup group,
               std::unique_ptr<MessageTransport> messages, std::shared_ptr<FaultState> faults);

  const EndpointOptions& options() const override { return options_; }
  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(peers_.size()); }
  bool mapped(int peer) const override { return localIndex(peer) >= 0; }
  bool sameProcess(int peer) const override;
  const std::vector<int>& localRanks() const override { return localRanks_; }
  const std::vector<std::vector<int>>& hosts() const override { return hosts_; }
  std::string transportName(int peer) const override;

  Result<FifoSender*> sender(int peer, int channel, int port) override;
  Result<FifoReceiver*> receiver(int peer, int channel, int port) override;
  std::atomic<uint64_t>* flag(int from, int to, int channel, int flag) override;
  std::byte* scratch(int rank, int channel) override;
  Doorbell* bell(int rank) override;

  void post(uint64_t sequence, const BoardEntry& entry) override;
  const BoardEntry* read(int rank, uint64_t sequence) const override;
  BufferDescriptor describe(const void* pointer, size_t bytes) const override;
  Result<std::byte*> mapPeerBuffer(int peer, const BufferDescriptor& buffer, Deadline deadline) override;
  Result<Mapping> mapForGood(int peer, const BufferDescriptor& buffer, Deadline deadline) override;

  bool progress() override { return messages_ && messages_->progress(); }
  void sendNow() override {
    if (messages_) messages_->sendNow();
  }
  void beginSleep() override {
    if (messages_) messages_->park();
  }
  void endSleep() override {
    if (messages_) messages_->take();
  }
  bool sleepOnConnections(uint32_t ticket, uint32_t limitMicros) override {
    return messages_ && messages_->sleep(ticket, limitMicros);
  }

 private:
  int localIndex(int peer) const { return localIndex_[static_cast<size_t>(peer)]; }
  void logConnection(int from, int to, int channel, int port) const;
  Status checkConnection(int peer, int channel, int port) const;
  size_t connectionIndex(int peer, int channel, int port) const;

  std::vector<PeerInfo> peers_;
  int rank_;
  EndpointOptions options_;
  std::vector<int> localRanks_;
  std::vector<std::vector<int>> hosts_;
  std::vector<int> localIndex_;  // by rank: place among localRanks_, or -1
  bool directBuffers_;
  Secret secret_;
  std::shared_ptr<FaultState> faults_;
  std::shared_ptr<HostSegment> segment_;
  std::unique_ptr<MemoryService> memory_;
  std::vector<MemoryServiceAddress> memoryAddresses_;
  PeerMemory peerMemory_;
  std::vector<char> saidDirect_;                // by rank: the log has said that its buffers are used
  std::unique_ptr<MessageTransport> messages_;  // uses the bell in segment_: destroyed before it
  std::vector<FifoSender*> senders_;            // by connectionIndex; null until asked for
  std::vector<FifoReceiver*> receivers_;        // likewise
  std::deque<FifoSender> mappedSenders_;        // those that are not in messages_; deques keep their places
  std::deque<FifoReceiver> mappedReceivers_;
};

}  // namespace tutti
