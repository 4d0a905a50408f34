#include "topology/verbs.h"

#include <endian.h>

#include <array>
#include <cerrno>
#include <utility>

#include "topology/dynamic_library.h"

namespace tutti {
namespace {

constexpr int kMostPorts = 16;
constexpr int kMostGids = 256;

std::string gidText(const std::array<uint8_t, 16>& gid) {
  std::string text;
  for (size_t i = 0; i < gid.size(); i += 2)
    text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", gid[i], gid[i + 1]);
  return text;
}

class VerbsReader {
 public:
  VerbsReader(const VerbsApi& verbs, std::vector<std::string>* notes) : verbs_(verbs), notes_(notes) {}

  std::vector<PortFacts> read() {
    int count = 0;
    errno = 0;
    VerbsApi::Device* const list = verbs_.deviceList(&count);
    if (list == nullptr) {
      notes_->push_back(systemError(errno, "libibverbs gives no list of devices").message());
      return {};
    }
    for (int i = 0; i < count; ++i) addDevice(list[i]);
    verbs_.freeDeviceList(list);
    return std::move(ports_);
  }

 private:
  void addDevice(VerbsApi::Device device) {
    const char* const name = verbs_.deviceName(device);
    if (name == nullptr) return;
    errno = 0;
    VerbsApi::Context const context = verbs_.open(device);
    if (context == nullptr) {
      notes_->push_back(systemError(errno, "RDMA device {} cannot be opened", name).message());
      return;
    }
    VerbsDeviceAttributes attributes{};
    if (const int error = verbs_.queryDevice(context, &attributes); error != 0) {
      notes_->push_back(systemError(error, "RDMA device {} does not describe itself", name).message());
    } else {
      uint64_t guid = be64toh(attributes.systemImageGuid);
      if (guid == 0) guid = be64toh(verbs_.deviceGuid(device));
      for (int port = 1; port <= kMostPorts; ++port)
        if (!addPort(context, name, port, guid, attributes.maxQueuePairs)) break;
    }
    verbs_.close(context);
  }

  /// False when there is no such port.
  bool addPort(VerbsApi::Context context, const char* name, int port, uint64_t guid, int32_t maxQueuePairs) {
    VerbsPortAttributes attributes{};
    if (verbs_.queryPort(context, static_cast<uint8_t>(port), &attributes) != 0) return false;
    PortFacts facts;
    facts.device = name;
    facts.port = port;
    facts.active = attributes.state == kVerbsPortActive;
    facts.layer = attributes.linkLayer == 1   ? LinkLayer::infiniband
                  : attributes.linkLayer == 2 ? LinkLayer::ethernet
                                              : LinkLayer::unknown;
    if (const int32_t speed = verbsSpeed(attributes.activeWidth, attributes.activeSpeed); speed > 0)
      facts.speed = speed;
    facts.guid = guid;
    facts.maxQueuePairs = maxQueuePairs;
    for (int index = 0; index < attributes.gidTableLength && index < kMostGids; ++index) {
      std::array<uint8_t, 16> gid{};
      if (verbs_.queryGid(context, static_cast<uint8_t>(port), index, gid.data()) != 0) continue;
      if (gid != std::array<uint8_t, 16>{}) facts.gids.push_back(fmt::format("{} {}", index, gidText(gid)));
    }
    ports_.push_back(std::move(facts));
    return true;
  }

  const VerbsApi& verbs_;
  std::vector<std::string>* notes_;
  std::vector<PortFacts> ports_;
};

}  // namespace

int32_t verbsSpeed(uint8_t width, uint8_t speed) {
  constexpr std::array<std::pair<uint8_t, int32_t>, 5> kLanes = {{{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}}};
  // Mb/s of a lane: SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR.
  constexpr std::array<std::pair<uint8_t, int32_t>, 8> kSpeeds = {
      {{1, 2500}, {2, 5000}, {4, 10000}, {8, 10000}, {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000}}};
  int32_t lanes = 0, rate = 0;
  for (const auto& [bit, count] : kLanes)
    if (width == bit) lanes = count;
  for (const auto& [bit, megabits] : kSpeeds)
    if (speed == bit) rate = megabits;
  return lanes * rate;
}

Result<VerbsApi> openVerbs(const std::string& file) {
  constexpr const char* kVersion = "IBVERBS_1.1";
  TUTTI_ASSIGN(const DynamicLibrary library, DynamicLibrary::open(file));
  VerbsApi verbs;
  TUTTI_TRY(library.require("ibv_get_device_list", &verbs.deviceList, kVersion));
  TUTTI_TRY(library.require("ibv_free_device_list", &verbs.freeDeviceList, kVersion));
  TUTTI_TRY(library.require("ibv_get_device_name", &verbs.deviceName, kVersion));
  TUTTI_TRY(library.require("ibv_get_device_guid", &verbs.deviceGuid, kVersion));
  TUTTI_TRY(library.require("ibv_open_device", &verbs.open, kVersion));
  TUTTI_TRY(library.require("ibv_close_device", &verbs.close, kVersion));
  TUTTI_TRY(library.require("ibv_query_device", &verbs.queryDevice, kVersion));
  TUTTI_TRY(library.require("ibv_query_port", &verbs.queryPort, kVersion));
  TUTTI_TRY(library.require("ibv_query_gid", &verbs.queryGid, kVersion));
  return verbs;
}

std::vector<PortFacts> readVerbs(const VerbsApi& verbs, std::vector<std::string>* notes) {
  return VerbsReader(verbs, notes).read();
}

}  // namespace tutti
