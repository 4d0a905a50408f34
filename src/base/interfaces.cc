// Which network interfaces to use.
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/params.h"
#include "base/socket.h"

namespace tutti {
namespace {

/// NCCL_SOCKET_IFNAME taken apart.
struct NameList {
  bool exclude = false;
  bool exact = false;
  std::vector<std::string> names;

  explicit NameList(std::string text) {
    if (text.starts_with('^')) {
      exclude = true;
      text.erase(0, 1);
    }
    if (text.starts_with('=')) {
      exact = true;
      text.erase(0, 1);
    }
    size_t start = 0;
    while (start <= text.size()) {
      const size_t end = std::min(text.find(',', start), text.size());
      if (end > start) names.push_back(text.substr(start, end - start));
      start = end + 1;
    }
  }
  bool matches(const std::string& name) const {
    return std::any_of(names.begin(), names.end(), [&](const std::string& wanted) {
      return exact ? name == wanted : name.starts_with(wanted);
    });
  }
};

/// The bytes of an address in network order.
std::string_view rawBytes(const SocketAddress& address) {
  if (address.family() == AF_INET)
    return {reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in*>(address.data())->sin_addr),
            4};
  if (address.family() == AF_INET6)
    return {reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in6*>(address.data())->sin6_addr),
            16};
  return {};
}

bool inSubnet(const NetworkInterface& interface, const SocketAddress& address) {
  if (!address.isValid() || interface.address.family() != address.family()) return false;
  const std::string_view a = rawBytes(interface.address);
  const std::string_view b = rawBytes(address);
  for (int bit = 0; bit < interface.prefixBits; bit += 8) {
    const auto at = static_cast<size_t>(bit / 8);
    const int bits = std::min(8, interface.prefixBits - bit);
    const auto mask = static_cast<uint8_t>(0xff << (8 - bits));
    if (((static_cast<uint8_t>(a[at]) ^ static_cast<uint8_t>(b[at])) & mask) != 0) return false;
  }
  return true;
}

int prefixLength(const sockaddr* mask) {
  if (mask == nullptr) return 0;
  const SocketAddress address = SocketAddress::from(mask, sizeof(sockaddr_in6));
  int bits = 0;
  for (const char byte : rawBytes(address))
    bits += std::popcount(static_cast<unsigned>(static_cast<uint8_t>(byte)));
  return bits;
}

/// Class in the default order; lower is better.
int classOf(const NetworkInterface& interface, const SocketAddress& sameSubnet) {
  const std::string& name = interface.name;
  if (name.starts_with("ib")) return 0;
  if (inSubnet(interface, sameSubnet)) return 1;
  if (name.starts_with("docker")) return 3;
  if (name == "lo" || interface.address.isLoopback()) return 4;
  if (name.starts_with("virbr")) return 5;
  return 2;
}

}  // namespace

Result<std::vector<NetworkInterface>> listInterfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return systemError(errno, "list network interfaces");
  std::vector<NetworkInterface> result;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if ((entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_RUNNING) == 0) continue;
    NetworkInterface interface;
    interface.name = entry->ifa_name;
    interface.address = SocketAddress::from(entry->ifa_addr, sizeof(sockaddr_in6));
    interface.prefixBits = prefixLength(entry->ifa_netmask);
    interface.index = ::if_nametoindex(entry->ifa_name);
    interface.address.setScope(interface.index);
    result.push_back(std::move(interface));
  }
  ::freeifaddrs(list);
  return result;
}

std::vector<NetworkInterface> chooseInterfaces(const std::vector<NetworkInterface>& all,
                                               const InterfaceRules& rules) {
  const NameList list(rules.names);
  const bool named = !list.names.empty();
  const bool classes = !named || list.exclude;  // a positive list is the user's own choice, lo included
  std::vector<NetworkInterface> result;
  int best = 1000;
  for (const NetworkInterface& interface : all) {
    if (rules.family != AF_UNSPEC && interface.address.family() != rules.family) continue;
    if (named && list.matches(interface.name) == list.exclude) continue;
    const int rank = classes ? classOf(interface, rules.sameSubnet) : 0;
    if (rank > best) continue;
    if (rank < best) result.clear();
    best = rank;
    result.push_back(interface);
  }
  const auto order = [](const NetworkInterface& i) {
    return (i.address.isLinkLocal() ? 2 : 0) + (i.address.family() == AF_INET6 ? 1 : 0);
  };
  std::stable_sort(result.begin(), result.end(),
                   [&](const auto& a, const auto& b) { return order(a) < order(b); });
  return result;
}

InterfaceRules interfaceRulesFromParams(bool outOfBand) {
  InterfaceRules rules;
  if (outOfBand) rules.names = params().oobNetIfname();
  if (rules.names.empty()) rules.names = params().socketIfname();
  constexpr int kFamilies[] = {AF_UNSPEC, AF_INET, AF_INET6};
  rules.family = kFamilies[params().socketFamily()];
  if (params().commId.isSet()) {
    const std::string text = params().commId();
    // A host's own name may mean a loopback address on it, which says nothing of the subnet to use.
    if (auto address = SocketAddress::parse(text);
        address.isOk() && !(address->isLoopback() && SocketAddress::namesHost(text)))
      rules.sameSubnet = *address;
  }
  return rules;
}

Result<std::vector<NetworkInterface>> usableInterfaces(const InterfaceRules& rules) {
  TUTTI_ASSIGN(const std::vector<NetworkInterface> all, listInterfaces());
  std::vector<NetworkInterface> chosen = chooseInterfaces(all, rules);
  if (!chosen.empty()) return chosen;
  std::string found;
  for (const auto& i : all)
    found += fmt::format("{}{} {}", found.empty() ? "" : ", ", i.name, i.address.hostText());
  return Status(
      ncclSystemError,
      fmt::format("no network interface fits NCCL_SOCKET_IFNAME=\"{}\"{}; those that are up: {}", rules.names,
                  rules.family == AF_UNSPEC ? ""
                  : rules.family == AF_INET ? " with IPv4"
                                            : " with IPv6",
                  found.empty() ? "none" : found));
}

std::vector<SocketAddress> withScopes(const std::vector<SocketAddress>& addresses,
                                      const std::vector<SocketAddress>& own) {
  std::vector<uint32_t> scopes;
  for (const SocketAddress& address : own)
    if (address.scope() != 0 && std::find(scopes.begin(), scopes.end(), address.scope()) == scopes.end())
      scopes.push_back(address.scope());
  std::vector<SocketAddress> result;
  for (SocketAddress address : addresses) {
    const bool needsScope = address.family() == AF_INET6 && address.isLinkLocal() && address.scope() == 0;
    if (!needsScope || scopes.empty()) {
      result.push_back(address);
      continue;
    }
    for (const uint32_t scope : scopes) {
      address.setScope(scope);
      result.push_back(address);
    }
  }
  // Many interfaces on both sides make too many pairs; routable addresses come first.
  constexpr size_t kMost = 64;
  if (result.size() > kMost) result.resize(kMost);
  return result;
}

}  // namespace tutti
