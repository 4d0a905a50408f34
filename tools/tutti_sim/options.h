// What the command line of tutti-sim says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/schedule.h"
#include "algorithms/simulator/fabrics.h"
#include "algorithms/simulator/simulate.h"
#include "base/status.h"

namespace tutti::simtool {

struct Options {
  Collective collective = Collective::allReduce;
  std::vector<int32_t> ranks = {8};
  std::vector<double> bytes = {1 << 20};
  std::vector<std::string> algorithms;  // empty: all
  int32_t root = 0;
  int32_t hosts = 0;    // 0: of perHost ranks
  int32_t perHost = 0;  // 0: the topology file's GPUs, or 8
  sim::NetworkOptions network;
  bool networkGiven = false;
  std::string topoFile;
  double portBytesPerSecond = 0;
  int32_t ports = 0;
  sim::Wire wire = sim::Wire::infiniBand;
  std::vector<sim::Protocol> protocols;  // GPUs; the best of them
  int32_t channels = 0;
  int32_t blocks = 0;
  double slotBytes = 0;  // 0: the protocol's
  sim::Engine engine = sim::Engine::automatic;

  bool best = false;
  bool json = false;
  bool place = false;
  std::optional<int32_t> show;
  std::string plotFile;
  bool verify = false;
  std::string verifyAlgorithm;  // empty: all
  std::string checkFile;        // an algorithm file to prove
  bool ranksGiven = false;
  int32_t maxRanks = 16;
  int32_t symmetricRanks = 0;  // also proved, where one rank stands for all
  bool exit = false;           // --help, --version: done
};

/// What the arguments say; `message` is what to print where options.exit is set. Errors (invalidUsage) name
/// the option, its value and what it may be.
Result<Options> parseOptions(int argc, const char* const* argv, std::string* message);

/// "64", "8:1G:4" (from, to, factor), "1K,1M": sizes with K, M, G, T of 1024.
Result<std::vector<double>> parseSizes(const std::string& text);
/// "400G", "25M": bits a second; bytes/s.
Result<double> parseSpeed(const std::string& text);

}  // namespace tutti::simtool
