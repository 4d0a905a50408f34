#include "bootstrap/unique_id.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/params.h"
#include "base/random.h"
#include "base/unique_fd.h"
#include "base/wire.h"
#include "bootstrap/rendezvous.h"

namespace tutti {
namespace {

constexpr uint32_t kMagic = 0x44495554;  // "TUID"
constexpr uint8_t kLayout = 2;
constexpr size_t kCheckOffset = 32;
constexpr size_t kAddressOffset = 36;
static_assert(sizeof(ncclUniqueId) == NCCL_UNIQUE_ID_BYTES);

/// The encoding of an address is family, port (3 bytes in all), address.
constexpr size_t kAddressPrefix = 3;

/// Takes those that fit in `room`, and counts them.
std::string encodeRuns(const std::vector<SocketAddress>& addresses, size_t room, uint8_t& count) {
  std::string list;
  std::string prefix;  // of the current run
  size_t length = 0;   // where its length is
  for (const SocketAddress& address : addresses) {
    if (address.family() != AF_INET && address.family() != AF_INET6) continue;
    const std::string one = address.encode();
    const bool joins = !prefix.empty() && one.starts_with(prefix);
    const size_t bytes = joins ? one.size() - kAddressPrefix : one.size() + 1;
    if (list.size() + bytes > room) continue;
    if (!joins) {
      prefix = one.substr(0, kAddressPrefix);
      list += prefix[0];
      length = list.size();
      list += '\0';
      list += prefix.substr(1);
    }
    list += one.substr(kAddressPrefix);
    ++list[length];
    ++count;
  }
  return list;
}

bool decodeRuns(std::string_view bytes, size_t count, std::vector<SocketAddress>& addresses) {
  WireReader in(bytes);
  while (addresses.size() < count) {
    const uint8_t family = in.u8();
    const uint8_t length = in.u8();
    const std::string_view port = in.raw(2);
    if ((family != 4 && family != 6) || length == 0 || addresses.size() + length > count) return false;
    for (int i = 0; i < length; ++i) {
      const std::string one = WireWriter().u8(family).raw(port).raw(in.raw(family == 4 ? 4 : 16)).bytes();
      std::string_view encoded = one;
      addresses.push_back(SocketAddress::decode(encoded));
      if (!in.ok() || !addresses.back().isValid()) return false;
    }
  }
  return true;
}

std::string checkBytes(std::string_view id) {
  std::string covered(id.substr(0, kCheckOffset));
  covered.append(id.substr(kAddressOffset));
  const Digest digest = sha256(covered);
  return {reinterpret_cast<const char*>(digest.data()), kAddressOffset - kCheckOffset};
}

Result<ncclUniqueId> idOfCommId() {
  UniqueId id;
  id.kind = UniqueId::Kind::rankZeroServes;
  TUTTI_ASSIGN(id.addresses, addressesOfCommId());
  const uint16_t port = id.addresses.front().port();
  // Everybody must get the same number, and hosts may know rank 0's host by different addresses.
  const Digest digest = sha256(fmt::format("tutti NCCL_COMM_ID {}", port));
  std::memcpy(&id.id, digest.data(), sizeof id.id);
  return id.encode();
}

}  // namespace

ncclUniqueId UniqueId::encode() const {
  uint8_t count = 0;
  const std::string list = encodeRuns(addresses, NCCL_UNIQUE_ID_BYTES - kAddressOffset, count);
  WireWriter out;
  out.u32(kMagic)
      .u8(kLayout)
      .u8(static_cast<uint8_t>(kind))
      .u8(count)
      .u8(0)
      .u64(id)
      .raw(secret.view())
      .u32(0);
  std::string bytes = out.raw(list).bytes();
  bytes.resize(NCCL_UNIQUE_ID_BYTES, '\0');
  bytes.replace(kCheckOffset, kAddressOffset - kCheckOffset, checkBytes(bytes));
  ncclUniqueId result;
  std::memcpy(result.internal, bytes.data(), bytes.size());
  return result;
}

Result<UniqueId> UniqueId::decode(const ncclUniqueId& bytes) {
  const std::string_view view(bytes.internal, sizeof bytes.internal);
  WireReader in(view);
  UniqueId id;
  const uint32_t magic = in.u32();
  const uint8_t layout = in.u8();
  const uint8_t kind = in.u8();
  const uint8_t count = in.u8();
  in.u8();
  if (magic != kMagic)
    return invalidArgument("the unique id was not made by this library (or not passed on to this rank)");
  if (layout != kLayout)
    return invalidArgument(
        "the unique id has layout {}, this library reads {}: all ranks need the same Tutti", layout, kLayout);
  if (view.substr(kCheckOffset, kAddressOffset - kCheckOffset) != checkBytes(view))
    return invalidArgument("the unique id is damaged: all {} bytes must be passed on unchanged",
                           NCCL_UNIQUE_ID_BYTES);
  if (kind > static_cast<uint8_t>(Kind::derived))
    return invalidArgument("the unique id has unknown kind {}", kind);
  id.kind = static_cast<Kind>(kind);
  id.id = in.u64();
  std::memcpy(id.secret.bytes.data(), in.raw(id.secret.bytes.size()).data(), id.secret.bytes.size());
  in.u32();
  if (!decodeRuns(view.substr(kAddressOffset), count, id.addresses))
    return invalidArgument("the unique id holds a bad address");
  if (id.addresses.empty()) return invalidArgument("the unique id holds no address");
  return id;
}

Result<ncclUniqueId> createUniqueId() {
  if (!params().commId().empty()) return idOfCommId();
  return createOwnUniqueId();
}

Result<ncclUniqueId> createOwnUniqueId() {
  TUTTI_ASSIGN(std::shared_ptr<AuthListener> listener, AuthListener::ofProcess());
  UniqueId id;
  TUTTI_ASSIGN(id.id, randomU64());
  TUTTI_ASSIGN(id.secret, Secret::random());
  id.addresses = listener->addresses();
  TUTTI_TRY(Root::start(std::move(listener), id.id, id.secret));
  return id.encode();
}

Result<std::vector<SocketAddress>> addressesOfCommId() {
  const std::string text = params().commId();
  TUTTI_ASSIGN(std::vector<SocketAddress> addresses,
               SocketAddress::parseAll(text).withContext("NCCL_COMM_ID"));
  const uint16_t port = addresses.front().port();
  if (port == 0) return invalidArgument("NCCL_COMM_ID=\"{}\": the port must not be 0", text);
  const auto loopbacks = std::stable_partition(addresses.begin(), addresses.end(),
                                               [](const SocketAddress& a) { return !a.isLoopback(); });
  // A host's own name often means 127.0.1.1 in its /etc/hosts: others must be told of its real addresses.
  if (loopbacks == addresses.end() || !SocketAddress::namesHost(text)) return addresses;
  std::vector<SocketAddress> own;
  TUTTI_ASSIGN(const auto interfaces, usableInterfaces(interfaceRulesFromParams(true)));
  for (const NetworkInterface& interface : interfaces) {
    own.push_back(interface.address);
    own.back().setPort(port);
  }
  logInfo(Subsystem::bootstrap,
          "NCCL_COMM_ID={} means {} here: {} may also be reached at this host's other addresses", text,
          loopbacks->hostText(), text);
  addresses.insert(loopbacks, own.begin(), own.end());
  return addresses;
}

void forgetUniqueId(const ncclUniqueId& bytes) {
  if (auto id = UniqueId::decode(bytes); id.isOk() && id->kind == UniqueId::Kind::makerServes)
    Root::cancel(id->id);
}

Result<Secret> secretOfCommId() {
  Secret secret;
  const std::string path = params().secretFile();
  if (path.empty()) return secret;
  constexpr size_t kLeast = 16, kMost = 65536;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return systemError(errno, "TUTTI_SECRET_FILE: open {}", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return systemError(errno, "TUTTI_SECRET_FILE: {}", path);
  if (!S_ISREG(info.st_mode)) return invalidUsage("TUTTI_SECRET_FILE: {} is not a regular file", path);
  if ((info.st_mode & 077) != 0)
    return invalidUsage("TUTTI_SECRET_FILE: {} can be read by others (mode {:04o}); use chmod 600", path,
                        info.st_mode & 07777);
  std::string content(kMost + 1, '\0');
  size_t size = 0;
  while (size < content.size()) {
    const ssize_t got = ::read(fd.get(), content.data() + size, content.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return systemError(errno, "TUTTI_SECRET_FILE: read {}", path);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size < kLeast || size > kMost)
    return invalidUsage("TUTTI_SECRET_FILE: {} has {} bytes; {} to {} are allowed", path, size, kLeast,
                        kMost);
  content.resize(size);
  const Digest digest = sha256("tutti secret file " + content);
  std::memcpy(secret.bytes.data(), digest.data(), secret.bytes.size());
  return secret;
}

}  // namespace tutti
