#include "transport/endpoint.h"

#include <sys/random.h>

#include <cstring>

#include "transport/host_endpoint.h"
#include "transport/host_segment.h"

namespace tutti {
namespace {

/// What every rank contributes to the first exchange.
struct SetupMessage {
  uint64_t nonce = 0;  // rank 0's becomes the communicator's
};

Result<std::vector<SetupMessage>> exchangeSetup(OobChannel& oob, const SetupMessage& mine,
                                                Deadline deadline) {
  TUTTI_ASSIGN(const auto texts, oob.allGather({reinterpret_cast<const char*>(&mine), sizeof(mine)}, deadline)
                                     .withContext("rank {}: exchange addresses of transports", oob.rank()));
  std::vector<SetupMessage> all(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() != sizeof(SetupMessage))
      return internalError("rank {} sent {} bytes where {} were expected to describe its transports", i,
                           texts[i].size(), sizeof(SetupMessage));
    std::memcpy(&all[i], texts[i].data(), sizeof(SetupMessage));
  }
  return all;
}

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::create(const std::vector<PeerInfo>& peers, int rank,
                                                   const EndpointOptions& options, OobChannel& oob,
                                                   std::shared_ptr<FaultState> faults, Deadline deadline) {
  SetupMessage mine;
  if (::getrandom(&mine.nonce, sizeof(mine.nonce), 0) != sizeof(mine.nonce))
    return systemError(errno, "rank {}: get random bytes", rank);
  TUTTI_ASSIGN(const auto setups, exchangeSetup(oob, mine, deadline));

  const auto& self = peers[static_cast<size_t>(rank)];
  std::vector<int> localRanks;
  for (const auto& peer : peers)
    if (peer.processToken == self.processToken && peer.hostId == self.hostId) localRanks.push_back(peer.rank);
  TUTTI_ASSIGN(const auto layout,
               HostSegmentLayout::make({static_cast<int>(localRanks.size()), options.channels,
                                        options.slotBytes, options.scratchBytes}));
  TUTTI_ASSIGN(auto segment, shareInProcess(setups.front().nonce, localRanks.front(),
                                            [&] { return HostSegment::anonymous(layout); }));
  TUTTI_TRY(oob.barrier(deadline));  // nobody may be gone before everyone found the segment
  return std::unique_ptr<Endpoint>(std::make_unique<HostEndpoint>(peers, rank, options, std::move(localRanks),
                                                                  std::move(segment), std::move(faults)));
}

}  // namespace tutti
