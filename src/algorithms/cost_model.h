// What a collective takes, by closed forms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "algorithms/algorithm_filter.h"
#include "algorithms/schedule.h"

namespace tutti {

class ClusterPlan;

/// The machine, in the terms of the alpha-beta-gamma model (Hockney; Thakur et al. 2005 section 3), plus what
/// matters where ranks share memory. Seconds, and seconds for each byte.
struct CostParameters {
  double alpha = 0;                // a message, from the sender's copy to the receiver's
  double beta = 0;                 // a byte of a message on one connection
  double gamma = 0;                // a byte reduced
  double signal = 0;               // a flag: raised here, seen there
  double perPeer = 0;              // every further flag, or message, of the same round
  double coreByte = 0;             // a byte that one rank loads or stores
  double hostByte = 0;             // a byte that the ranks of a host load or store together; 0: not limited
  size_t sliceBytes = 128 * 1024;  // most that one message carries
  /// alpha of every further slice of a vector that needs several; 0: hidden behind the others.
  double sliceAlpha = 0;
  /// Where each channel is a connection of its own: what a message costs more for every further channel, and
  /// a byte on one connection, however fast the link is.
  double perChannel = 0;
  double streamByte = 0;
  /// What each wait costs more where ranks outnumber the processors of their host, and so have to let each
  /// other run.
  double switching = 0;
  /// The part of the latency of a collective with a root that calls which follow each other do not hide: most
  /// ranks wait for nobody's answer, and go on.
  double rooted = 1;
};
/// The same where ranks outnumber processors.
CostParameters crowded(CostParameters costs);
/// The same for messages that `channels` channels carry at once.
CostParameters forChannels(CostParameters costs, int32_t channels);

/// Ranks of one host, through FIFOs and mapped memory. Measured on a 2-core EPYC VM (peers.md 2.2: 77 GB/s of
/// traffic by two cores, about 0.15 us for a coherence round).
CostParameters sharedMemoryCosts();
/// Ranks of several hosts over TCP; `linkBandwidth` bytes/s, 10 Gbit/s where it is not known (0).
CostParameters tcpCosts(double linkBandwidth = 0);

/// Agreeing that all users' buffers can be used directly, before a zero-copy call.
constexpr double kNegotiationSeconds = 0.3e-6;

/// Messages inside a host and between hosts cost differently.
struct TwoLevelCosts {
  CostParameters inside;
  CostParameters between;  // beta: a byte through all ports of a host together
  double call = 0;         // once a call
  /// A rank goes on while its message is under way: latency counts once in a pipeline, not for every slice.
  bool asynchronous = false;
};
/// GPUs: the speeds that the topology code derived for a job's rings (docs/topology.md), and NCCL's times for
/// protocol Simple.
TwoLevelCosts gpuCosts(const ClusterPlan& plan);
/// The same from numbers: bytes/s that a GPU sends inside its host, and all ports of a host together.
TwoLevelCosts gpuCosts(double insideBandwidth, double hostBandwidth);

/// Kernels of GPUs on one host.
struct KernelMachine {
  double bandwidth = 0;     // bytes/s that a GPU sends to a peer, all channels together; 0: not known
  bool wholeLines = false;  // its links keep 128-byte stores whole: protocol LL128 can be used
};
/// The same for one protocol: NCCL's published times of launch and hop; what a channel, a thread block, can
/// move is an estimate until a machine was measured (tuning file).
TwoLevelCosts kernelCosts(const KernelMachine& machine, Protocol protocol, int32_t channels);

/// What is asked: `bytes` is the whole vector (the block where the collective has one, all blocks else).
struct CostQuery {
  std::string_view algorithm;
  Collective collective = Collective::allReduce;
  int32_t ranks = 1;
  size_t bytes = 0;
  int32_t hosts = 1;     // with equally many ranks; a rank's neighbours are on its host
  int32_t channels = 1;  // each moves its part of the vector; all at once
  int32_t blocks = 0;    // of pipelines; 0: bestBlocks()
};

/// What an algorithm does, whatever the machine: the numbers that the time is made of. n is the whole vector.
struct CostForm {
  bool known = false;
  bool exactRounds = false;  // `rounds` is the certificate's (Certificate::rounds) for every rank count
  bool exactSent = false;    // `sent` is
  double rounds = 0;         // messages (or signals) in a row
  double sent = 0;           // n that the busiest rank sends in messages
  double serial = 0;         // n that pass one after the other on the longest chain; the links' time
  double reduced = 0;        // n reduced on it
  double traffic = 0;        // n that all ranks of a host load and store (sharing its memory)
  double own = 0;            // n that the busiest of them does
  double largest = 1;        // n that one message carries
  double extraMessages = 0;  // started at once with another one
  double extraBetween = 0;   // of them, to and from other hosts
  double barriers = 0;       // flags to and from everybody; no messages then
  double negotiations = 0;   // agreeing before the call, which is a barrier more
  double fixed = 0;          // seconds
  // A pipeline: `stages` that each pass on perStage of every slice. 0: none.
  double stages = 0, perStage = 1;
  // Over several hosts:
  double roundsBetween = 0;  // of `rounds`
  double hostSent = 0;       // n that leave the busiest host
};

/// The form for `blocks` blocks (those of the query are not looked at); known = false where there is none.
CostForm costForm(const CostQuery& query, int32_t blocks);

/// Seconds that the call takes when all ranks enter at once; infinity for an algorithm that has no closed
/// form.
double predictSeconds(const CostQuery& query, const CostParameters& costs);
/// The same where hosts have several ranks. An approximation where messages of a round are of both kinds; the
/// simulator (algorithms/simulator) lays them on links.
double predictSeconds(const CostQuery& query, const TwoLevelCosts& costs);

/// True for algorithms whose number of blocks matters: circulant Broadcast and Reduce.
bool pipelinesBlocks(std::string_view algorithm, Collective collective);
/// The number of blocks, 1 .. kMostBlocks, with the least predicted time.
int32_t bestBlocks(const CostQuery& query, const CostParameters& costs);
constexpr int32_t kMostBlocks = 64;

}  // namespace tutti
