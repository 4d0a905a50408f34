// What libraries say of GPUs and network ports, before it is put into the description of the host.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "topology/description.h"

namespace tutti {

/// One NVLink that is up.
struct NvlinkFacts {
  int32_t link = 0;
  std::optional<int32_t> version;
  NvlinkDescription description;  // the other end; count 1
  bool operator==(const NvlinkFacts&) const = default;
};

/// Whether one GPU reaches another's memory, as the driver says.
struct PeerAccessFacts {
  bool read = false;
  bool write = false;
  bool nvlink = false;
  bool atomics = false;
  bool operator==(const PeerAccessFacts&) const = default;
};

struct GpuFacts {
  BusId busId;
  std::optional<int32_t> dev;
  std::optional<int32_t> sm;
  std::optional<int32_t> gdr;
  std::string name;
  std::string uuid;
  std::optional<int32_t> pciGeneration;  // what card and slot can do: 5
  std::optional<int32_t> pciWidth;
  std::vector<NvlinkFacts> nvlinks;
  int32_t nvlinksDown = 0;  // that the GPU has, but that are not up
  std::vector<C2cDescription> c2c;
  std::map<BusId, PeerAccessFacts> peers;
  /// NVLink domain beyond one host: cluster (hexadecimal) and clique. Empty: none.
  std::string fabricCluster;
  uint32_t fabricClique = 0;
  bool operator==(const GpuFacts&) const = default;
};

enum class LinkLayer : uint8_t { unknown, infiniband, ethernet };

/// A port of an RDMA device.
struct PortFacts {
  std::string device;  // "mlx5_0"
  int32_t port = 1;
  bool active = false;
  LinkLayer layer = LinkLayer::unknown;
  std::optional<int32_t> speed;   // Mb/s
  uint64_t guid = 0;              // of the card (system image), else of the device
  int32_t maxQueuePairs = 0;      // 0: not known
  std::vector<std::string> gids;  // those in use, "fe80:0000:...", with their index: "3 fe80:..."
  bool operator==(const PortFacts&) const = default;
};

}  // namespace tutti
