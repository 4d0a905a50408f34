// SocketAddress: parsing, printing, encoding.
#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/socket.h"
#include "base/wire.h"

namespace tutti {

SocketAddress::SocketAddress() {
  std::memset(&storage_, 0, sizeof storage_);
  storage_.base.sa_family = AF_UNSPEC;
}

SocketAddress SocketAddress::from(const sockaddr* address, socklen_t length) {
  SocketAddress result;
  if (address == nullptr) return result;
  const int family = address->sa_family;
  if (family == AF_INET) length = sizeof(sockaddr_in);
  if (family == AF_INET6) length = sizeof(sockaddr_in6);
  if (family != AF_INET && family != AF_INET6 && family != AF_UNIX) return result;
  result.length_ = std::min<socklen_t>(length, sizeof result.storage_);
  std::memcpy(&result.storage_, address, result.length_);
  return result;
}

Result<SocketAddress> SocketAddress::parse(const std::string& text, int family) {
  TUTTI_ASSIGN(const std::vector<SocketAddress> all, parseAll(text, family));
  return all.front();
}

Result<std::vector<SocketAddress>> SocketAddress::parseAll(const std::string& text, int family) {
  std::string host, port;
  const size_t bracket = text.find(']');
  if (!text.empty() && text[0] == '[' && bracket != std::string::npos) {
    host = text.substr(1, bracket - 1);
    if (bracket + 1 < text.size() && text[bracket + 1] == ':') port = text.substr(bracket + 2);
  } else if (const size_t colon = text.rfind(':'); colon != std::string::npos && text.find(':') == colon) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  const bool digits = !port.empty() && port.size() <= 5 &&
                      std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (host.empty() || !digits || std::stoul(port) > 65535)
    return invalidArgument("\"{}\" is no address: expected host:port or [IPv6]:port", text);
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  // Known without anybody's help (RFC 6761), also where a container has no /etc/hosts.
  if (error != 0 && host == "localhost")
    return std::vector<SocketAddress>{
        loopback(family == AF_INET6 ? AF_INET6 : AF_INET, static_cast<uint16_t>(std::stoul(port)))};
  if (error != 0)
    return Status(ncclInvalidArgument, fmt::format("resolve {}: {}", host, ::gai_strerror(error)));
  std::vector<SocketAddress> result;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    const SocketAddress address = from(entry->ai_addr, entry->ai_addrlen);
    if (address.isValid() && std::find(result.begin(), result.end(), address) == result.end())
      result.push_back(address);
  }
  ::freeaddrinfo(found);
  if (result.empty()) return invalidArgument("resolve {}: neither an IPv4 nor an IPv6 address", host);
  return result;
}

bool SocketAddress::namesHost(std::string_view text) {
  const auto isLetter = [](char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; };
  return !text.starts_with('[') && !text.starts_with("localhost:") &&
         std::any_of(text.begin(), text.end(), isLetter);
}

SocketAddress SocketAddress::loopback(int family, uint16_t port) {
  SocketAddress result = any(family, port);
  if (family == AF_INET) result.storage_.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (family == AF_INET6) result.storage_.v6.sin6_addr = in6addr_loopback;
  return result;
}

SocketAddress SocketAddress::any(int family, uint16_t port) {
  SocketAddress result;
  result.storage_.base.sa_family = static_cast<sa_family_t>(family);
  result.length_ = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  result.setPort(port);
  return result;
}

SocketAddress SocketAddress::abstractUnix(std::string_view name) {
  SocketAddress result;
  result.storage_.local.sun_family = AF_UNIX;
  // sun_path[0] == 0 makes it abstract.
  const size_t size = std::min(name.size(), sizeof(result.storage_.local.sun_path) - 1);
  std::memcpy(result.storage_.local.sun_path + 1, name.data(), size);
  result.length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  return result;
}

uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(storage_.v4.sin_port);
  if (family() == AF_INET6) return ntohs(storage_.v6.sin6_port);
  return 0;
}

void SocketAddress::setPort(uint16_t port) {
  if (family() == AF_INET) storage_.v4.sin_port = htons(port);
  if (family() == AF_INET6) storage_.v6.sin6_port = htons(port);
}

bool SocketAddress::isLinkLocal() const {
  if (family() == AF_INET) return (ntohl(storage_.v4.sin_addr.s_addr) >> 16) == 0xa9fe;
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&storage_.v6.sin6_addr);
}

bool SocketAddress::isLoopback() const {
  if (family() == AF_INET) return (ntohl(storage_.v4.sin_addr.s_addr) >> 24) == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&storage_.v6.sin6_addr);
}

void SocketAddress::setScope(uint32_t interfaceIndex) {
  if (family() == AF_INET6 && isLinkLocal()) storage_.v6.sin6_scope_id = interfaceIndex;
}
uint32_t SocketAddress::scope() const { return family() == AF_INET6 ? storage_.v6.sin6_scope_id : 0; }

std::string SocketAddress::hostText() const {
  char text[INET6_ADDRSTRLEN] = {};
  if (family() == AF_INET) {
    ::inet_ntop(AF_INET, &storage_.v4.sin_addr, text, sizeof text);
    return text;
  }
  if (family() == AF_INET6) {
    ::inet_ntop(AF_INET6, &storage_.v6.sin6_addr, text, sizeof text);
    if (scope() == 0) return text;
    char name[IF_NAMESIZE] = {};
    if (::if_indextoname(scope(), name) != nullptr) return std::string(text) + "%" + name;
    return fmt::format("{}%{}", text, scope());
  }
  if (family() == AF_UNIX) {
    const size_t size = length_ - std::min<size_t>(length_, offsetof(sockaddr_un, sun_path));
    if (size == 0) return "unix:(unnamed)";
    const std::string path(storage_.local.sun_path, size);
    return path[0] == '\0' ? "unix:@" + path.substr(1) : "unix:" + path;
  }
  return "(no address)";
}

std::string SocketAddress::text() const {
  if (family() == AF_INET) return fmt::format("{}:{}", hostText(), port());
  if (family() == AF_INET6) return fmt::format("[{}]:{}", hostText(), port());
  return hostText();
}

// Family byte on the wire: 4, 6 or 1 (Unix). Scopes are not sent: they are numbers of one machine.
std::string SocketAddress::encode() const {
  WireWriter out;
  if (family() == AF_INET) {
    out.u8(4).u16(port()).raw({reinterpret_cast<const char*>(&storage_.v4.sin_addr), 4});
  } else if (family() == AF_INET6) {
    out.u8(6).u16(port()).raw({reinterpret_cast<const char*>(&storage_.v6.sin6_addr), 16});
  } else if (family() == AF_UNIX) {
    const size_t size = length_ - std::min<size_t>(length_, offsetof(sockaddr_un, sun_path) + 1);
    out.u8(1).u8(static_cast<uint8_t>(size)).raw({storage_.local.sun_path + 1, size});
  } else {
    out.u8(0);
  }
  return std::move(out).bytes();
}

SocketAddress SocketAddress::decode(std::string_view& bytes) {
  WireReader in(bytes);
  SocketAddress result;
  const uint8_t kind = in.u8();
  if (kind == 4 || kind == 6) {
    const uint16_t port = in.u16();
    result = any(kind == 4 ? AF_INET : AF_INET6, port);
    const std::string_view raw = in.raw(kind == 4 ? 4 : 16);
    if (in.ok() && kind == 4) std::memcpy(&result.storage_.v4.sin_addr, raw.data(), 4);
    if (in.ok() && kind == 6) std::memcpy(&result.storage_.v6.sin6_addr, raw.data(), 16);
  } else if (kind == 1) {
    const std::string_view name = in.raw(in.u8());
    if (in.ok()) result = abstractUnix(name);
  }
  bytes = in.ok() ? bytes.substr(bytes.size() - in.left()) : std::string_view{};
  return in.ok() ? result : SocketAddress();
}

bool SocketAddress::sameHost(const SocketAddress& other) const {
  SocketAddress a = *this, b = other;
  a.setPort(0);
  b.setPort(0);
  return a == b;
}

}  // namespace tutti
