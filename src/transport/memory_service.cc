#include "transport/memory_service.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "base/identity.h"
#include "base/log.h"
#include "base/random.h"
#include "base/wire.h"
#include "device/host_table.h"

namespace tutti {
namespace {

constexpr uint64_t kSegmentFile = 0;
constexpr size_t kReplyBytes = 16;  // u64 file id, u64 length
constexpr std::chrono::seconds kReplyLimit{5};
/// Files of peers that an endpoint keeps mapped. Beyond it, those that no call has used for a while go: their
/// owners have probably freed them (ids are never used again), or use so many that mapping again is the
/// price.
constexpr size_t kMaxFiles = 1024;
constexpr std::chrono::seconds kUnusedFor{60};

/// The Unix listener that all endpoints of this process share.
Result<std::shared_ptr<AuthListener>> processListener() {
  static std::mutex& mutex = *new std::mutex;  // never destroyed, as endpoints may be made at exit
  static uint64_t owner = 0;
  static auto& known = *new std::weak_ptr<AuthListener>;
  const std::lock_guard lock(mutex);
  TUTTI_ASSIGN(const uint64_t self, processToken());
  if (owner == self) {
    if (auto listener = known.lock()) return listener;
  }
  TUTTI_ASSIGN(const uint64_t number, randomU64());
  const auto address = SocketAddress::abstractUnix(fmt::format("tutti-{}-{:016x}", ::getpid(), number));
  TUTTI_ASSIGN(auto listener, AuthListener::listen({address}));
  owner = self;
  known = listener;
  return listener;
}

/// Mappings of peers' files in this process.
struct ProcessMappings {
  std::mutex mutex;
  std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<MemoryFile>> byFile;
};
ProcessMappings& processMappings() {
  static auto* mappings = new ProcessMappings;  // never destroyed: endpoints may outlive static destruction
  return *mappings;
}

const tuttiHostRuntime_v1* runtimeOrNull() {
  static const tuttiHostRuntime_v1* table = [] {
    auto found = hostTable();
    if (found.isOk()) return found.value();
    logInfo(Subsystem::reg, "peers cannot use buffers directly: {}", found.status().message());
    return static_cast<const tuttiHostRuntime_v1*>(nullptr);
  }();
  return table;
}

}  // namespace

Result<std::unique_ptr<MemoryService>> MemoryService::start(const Secret& secret) {
  std::unique_ptr<MemoryService> service(new MemoryService);
  TUTTI_ASSIGN(service->listener_, processListener());
  TUTTI_ASSIGN(uint64_t number, randomU64());
  number |= 1;  // never 0
  TUTTI_TRY(service->listener_->offer(number, secret, [self = service.get()](AcceptedConnection connection) {
    self->answer(std::move(connection));
  }));
  service->address_ = {service->listener_->addresses().front(), number};
  return service;
}

MemoryService::~MemoryService() {
  if (address_.service != 0) listener_->withdraw(address_.service);
}

Status MemoryService::offerSegment(int fd, size_t bytes) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return systemError(errno, "duplicate the descriptor of the host segment");
  const std::lock_guard lock(mutex_);
  segment_ = std::move(copy);
  segmentBytes_ = bytes;
  return Status::ok();
}

void MemoryService::withdrawSegment() {
  const std::lock_guard lock(mutex_);
  segment_.reset();
}

BufferDescriptor MemoryService::describe(const void* pointer) {
  BufferDescriptor descriptor;
  descriptor.address = reinterpret_cast<uint64_t>(pointer);
  const tuttiHostRuntime_v1* runtime = runtimeOrNull();
  tuttiMemoryFileRef ref{};
  if (pointer == nullptr || runtime == nullptr || runtime->memoryFileOf(pointer, &ref) != 0)
    return descriptor;
  descriptor.fileId = ref.fileId;
  descriptor.fileBytes = ref.fileBytes;
  descriptor.offset = ref.offset;
  const std::lock_guard lock(mutex_);
  if (files_.size() >= kMaxFiles && files_.count(ref.fileId) == 0) {
    // Forget what has been freed; live files are looked up again when they are described again.
    std::erase_if(files_, [&](const auto& entry) {
      tuttiMemoryFileRef known{};
      return runtime->memoryFileOf(entry.second, &known) != 0 || known.fileId != entry.first;
    });
  }
  files_.insert_or_assign(ref.fileId, ref.base);
  return descriptor;
}

void MemoryService::answer(AcceptedConnection connection) {
  WireReader request(connection.payload);
  const uint64_t fileId = request.u64();
  Status status = request.finished() ? send(connection, fileId) : invalidUsage("malformed request");
  // Without an answer the requester finds the connection closed, and reports that.
  if (!status.isOk())
    logWarn("request for memory file {} of this process refused: {}", fileId, status.message());
}

Status MemoryService::send(const AcceptedConnection& connection, uint64_t fileId) {
  UniqueFd copy;
  size_t bytes = 0;
  if (fileId == kSegmentFile) {
    const std::lock_guard lock(mutex_);
    if (!segment_) return invalidUsage("there is no host segment to give");
    copy.reset(::fcntl(segment_.get(), F_DUPFD_CLOEXEC, 0));
    bytes = segmentBytes_;
  } else {
    const void* start = nullptr;
    {
      const std::lock_guard lock(mutex_);
      const auto known = files_.find(fileId);
      if (known == files_.end()) return invalidUsage("no buffer in it was described to peers");
      start = known->second;
    }
    const tuttiHostRuntime_v1* runtime = runtimeOrNull();
    tuttiMemoryFileRef ref{};
    if (runtime == nullptr || runtime->memoryFileOf(start, &ref) != 0 || ref.fileId != fileId)
      return invalidUsage("its memory has been freed");
    copy.reset(::fcntl(ref.fd, F_DUPFD_CLOEXEC, 0));
    // The descriptor's number is good only while the memory lives: if it still lives now, the copy is of it.
    tuttiMemoryFileRef again{};
    if (runtime->memoryFileOf(start, &again) != 0 || again.fileId != fileId)
      return invalidUsage("its memory has been freed");
    bytes = ref.fileBytes;
    // A file that shrinks kills its readers (SIGBUS). Refused when sealed already, which is as good.
    if (copy) (void)::fcntl(copy.get(), F_ADD_SEALS, F_SEAL_SHRINK);
  }
  if (!copy) return systemError(errno, "duplicate its descriptor");
  const std::string reply = WireWriter().u64(fileId).u64(bytes).bytes();
  // Never waits: it is the first and only thing in an empty socket buffer.
  return sendDescriptor(connection.fd.get(), copy.get(), reply, Deadline::after(kReplyLimit), nullptr);
}

Result<MemoryFile> fetchMemoryFile(const PeerInfo& owner, const MemoryServiceAddress& from,
                                   const Secret& secret, uint64_t fileId, size_t bytes, Deadline deadline,
                                   const FaultState* faults) {
  const auto fetch = [&]() -> Result<MemoryFile> {
    if (from.service == 0) return invalidUsage("it passes no memory files");
    const std::string request = WireWriter().u64(fileId).bytes();
    TUTTI_ASSIGN(UniqueFd socket, connectAuthenticated({from.socket}, from.service, secret, request, deadline,
                                                       faults, RetryPolicy{}));
    TUTTI_ASSIGN(ReceivedDescriptor received, receiveDescriptor(socket.get(), kReplyBytes, deadline, faults));
    WireReader reply(received.payload);
    const uint64_t gotId = reply.u64();
    const uint64_t gotBytes = reply.u64();
    if (!reply.finished() || gotId != fileId || gotBytes != bytes)
      return internalError("got file {} of {} bytes, wanted {} bytes", gotId, gotBytes, bytes);
    return MemoryFile::attach(std::move(received.fd), bytes);
  };
  return fetch().withContext("memory file {} of rank {} (host {}, process {})", fileId, owner.rank,
                             owner.hostName, owner.pid);
}

Result<std::byte*> PeerMemory::map(const PeerInfo& owner, const MemoryServiceAddress& from,
                                   const Secret& secret, const BufferDescriptor& buffer, Deadline deadline,
                                   const FaultState* faults) {
  if (buffer.fileId == 0)
    return invalidUsage(
        "the buffer of rank {} (host {}) is not in a memory file, so no other process can use it", owner.rank,
        owner.hostName);
  if (buffer.offset > buffer.fileBytes)
    return internalError("the buffer of rank {} (host {}) lies at {} in a file of {} bytes", owner.rank,
                         owner.hostName, buffer.offset, buffer.fileBytes);
  const std::pair key{owner.processToken, buffer.fileId};
  const auto now = std::chrono::steady_clock::now();
  if (const auto known = files_.find(key); known != files_.end()) {
    if (buffer.offset > known->second.file->size())
      return internalError("the buffer of rank {} (host {}) lies at {} in a file of {} bytes", owner.rank,
                           owner.hostName, buffer.offset, known->second.file->size());
    known->second.used = now;
    return known->second.file->data() + buffer.offset;
  }
  evict(now);

  ProcessMappings& mappings = processMappings();
  std::shared_ptr<MemoryFile> file;
  {
    const std::lock_guard lock(mappings.mutex);
    std::erase_if(mappings.byFile, [](const auto& entry) { return entry.second.expired(); });
    if (const auto known = mappings.byFile.find(key); known != mappings.byFile.end())
      file = known->second.lock();
  }
  if (!file) {
    TUTTI_ASSIGN(MemoryFile fetched,
                 fetchMemoryFile(owner, from, secret, buffer.fileId, buffer.fileBytes, deadline, faults));
    fetched.closeDescriptor();
    file = std::make_shared<MemoryFile>(std::move(fetched));
    const std::lock_guard lock(mappings.mutex);
    mappings.byFile[key] = file;  // another rank may have been as fast: then both mappings live on
  }
  files_[key] = {file, now};
  return file->data() + buffer.offset;
}

void PeerMemory::evict(std::chrono::steady_clock::time_point now) {
  if (files_.size() < kMaxFiles) return;
  std::erase_if(files_, [&](const auto& entry) { return now - entry.second.used > kUnusedFor; });
}

}  // namespace tutti
