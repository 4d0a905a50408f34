#include "transport/endpoint.h"

#include <algorithm>
#include <utility>

#include "transport/host_endpoint.h"
#include "transport/host_group.h"
#include "transport/message_transport.h"

namespace tutti {
namespace {

Status checkPeers(const std::vector<PeerInfo>& peers, int rank, const OobChannel& oob) {
  if (rank < 0 || rank >= static_cast<int>(peers.size()) || oob.rank() != rank ||
      oob.size() != static_cast<int>(peers.size()))
    return internalError("endpoint of rank {} of {}: the out-of-band channel is of rank {} of {}", rank,
                         peers.size(), oob.rank(), oob.size());
  for (size_t i = 0; i < peers.size(); ++i)
    if (peers[i].rank != static_cast<int>(i))
      return internalError("endpoint: entry {} of the peers describes rank {}", i, peers[i].rank);
  return Status::ok();
}

/// Starts to take data connections and tells all ranks where.
Result<std::unique_ptr<MessageTransport>> openMessages(const std::vector<PeerInfo>& peers, int rank,
                                                       const EndpointOptions& options, const HostGroup& group,
                                                       OobChannel& oob,
                                                       const std::shared_ptr<FaultState>& faults,
                                                       Deadline deadline) {
  const auto place = std::find(group.ranks.begin(), group.ranks.end(), rank) - group.ranks.begin();
  const bool oneProcess = std::all_of(group.ranks.begin(), group.ranks.end(), [&](int other) {
    return peers[static_cast<size_t>(other)].processToken == peers[static_cast<size_t>(rank)].processToken;
  });
  // Memory files came through abstract Unix sockets, as wake-ups would; named segments may be all there is.
  const bool bellHasLine = oneProcess || group.memory != nullptr;
  auto opened = MessageTransport::listen(peers, rank, options, group.segment->bell(static_cast<int>(place)),
                                         bellHasLine, faults);
  // A rank that cannot listen says so, since the others wait for its address.
  const std::string mine = opened.isOk() ? opened.value()->address().encode() : std::string();
  TUTTI_ASSIGN(const auto texts,
               oob.allGather(mine, deadline).withContext("rank {}: exchange data addresses", rank));
  if (!opened.isOk()) return opened.status();
  std::vector<MessageTransport::Address> addresses;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty())
      return remoteError("rank {} (host {}) cannot take data connections; its own error says why", i,
                         peers[i].hostName);
    TUTTI_ASSIGN(auto address, MessageTransport::Address::decode(texts[i]).withContext("rank {}", i));
    addresses.push_back(std::move(address));
  }
  opened.value()->setAddresses(std::move(addresses));
  return opened;
}

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::create(const std::vector<PeerInfo>& peers, int rank,
                                                   const EndpointOptions& options, OobChannel& oob,
                                                   std::shared_ptr<FaultState> faults, Deadline deadline) {
  TUTTI_TRY(checkPeers(peers, rank, oob));
  TUTTI_ASSIGN(HostGroup group,
               joinHostGroup(peers, rank, options, transportSecret(options), oob, faults.get(), deadline));
  std::unique_ptr<MessageTransport> messages;
  if (group.needsMessages) {
    TUTTI_ASSIGN(messages, openMessages(peers, rank, options, group, oob, faults, deadline));
  }
  return std::unique_ptr<Endpoint>(std::make_unique<HostEndpoint>(peers, rank, options, std::move(group),
                                                                  std::move(messages), std::move(faults)));
}

}  // namespace tutti
