// What a collective takes, by closed forms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "algorithms/schedule.h"

namespace tutti {

/// The machine, in the terms of the alpha-beta-gamma model (Hockney; Thakur et al. 2005 section 3), plus what
/// matters where ranks share memory. Seconds, and seconds for each byte.
struct CostParameters {
  double alpha = 0;     // a message, from the sender's copy to the receiver's
  double beta = 0;      // a byte of a message on one connection
  double gamma = 0;     // a byte reduced
  double signal = 0;    // a flag: raised here, seen there
  double perPeer = 0;   // every further flag of the same round
  double coreByte = 0;  // a byte that one rank loads or stores
  double hostByte = 0;  // a byte that the ranks of a host load or store together; 0: not limited
  size_t sliceBytes = 128 * 1024;
};

/// Ranks of one host, through FIFOs and mapped memory. Measured on a 2-core EPYC VM (peers.md 2.2: 77 GB/s of
/// traffic by two cores, about 0.15 us for a coherence round).
CostParameters sharedMemoryCosts();
/// Ranks of several hosts over TCP, 15 us a message; `linkBandwidth` bytes/s, 10 Gbit/s where it is not known
/// (0).
CostParameters tcpCosts(double linkBandwidth = 0);

/// Agreeing that all users' buffers can be used directly, before a zero-copy call.
constexpr double kNegotiationSeconds = 0.6e-6;

/// What is asked: `bytes` is the whole vector (the block where the collective has one, all blocks else).
struct CostQuery {
  std::string_view algorithm;
  Collective collective = Collective::allReduce;
  int32_t ranks = 1;
  size_t bytes = 0;
  int32_t hosts = 1;
};

/// Seconds that the call takes when all ranks enter at once; infinity for an algorithm that has no closed
/// form.
double predictSeconds(const CostQuery& query, const CostParameters& costs);

}  // namespace tutti
