#include "executor/cuda/cuda_comm.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

namespace tutti {
namespace {

/// Kernels write and read these words while the host does.
template <typename T>
T sharedLoad(const T& word, std::memory_order order = std::memory_order_relaxed) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(order);
}

size_t lineAligned(size_t bytes) { return (bytes + 127) / 128 * 128; }

template <typename T>
T* objectAt(std::byte* memory) {
  return static_cast<T*>(static_cast<void*>(memory));
}

}  // namespace

Status CudaComm::create() {
  const DeviceGroupOptions& options = group_.options();
  const auto ranks = static_cast<size_t>(group_.ranks());
  const size_t links = ranks * options.layout.channels * device::kPorts;
  senders_.resize(links);
  receivers_.resize(links);

  const size_t segmentsAt = lineAligned(sizeof(device::Comm));
  const size_t sendersAt = lineAligned(segmentsAt + ranks * sizeof(std::byte*));
  const size_t receiversAt = lineAligned(sendersAt + links * sizeof(device::Sender));
  TUTTI_ASSIGN(std::byte * memory, memory_.allocate(receiversAt + links * sizeof(device::Receiver)));
  // On a line of its own: every wait looks at it.
  const size_t reportAt = lineAligned(sizeof(uint32_t));
  TUTTI_ASSIGN(std::byte * host, memory_.allocateHost(reportAt + sizeof(device::Report)));
  abortFlag_ = objectAt<uint32_t>(host);
  report_ = new (host + reportAt) device::Report;

  comm_.rank = rank_;
  comm_.ranks = group_.ranks();
  comm_.slotBytes = options.slotBytes;
  comm_.linesOfSlotLL = options.linesOfSlotLL;
  comm_.linesOfSlotLL128 = options.linesOfSlotLL128;
  comm_.layout = options.layout;
  comm_.segments = objectAt<std::byte*>(memory + segmentsAt);
  comm_.senders = objectAt<device::Sender>(memory + sendersAt);
  comm_.receivers = objectAt<device::Receiver>(memory + receiversAt);
  comm_.abort = abortFlag_;
  comm_.report = report_;
  onDevice_ = objectAt<device::Comm>(memory);
  TUTTI_TRY(memory_.upload(onDevice_, &comm_, sizeof(comm_)));
  std::vector<std::byte*> segments;
  segments.reserve(ranks);
  for (int rank = 0; rank < group_.ranks(); ++rank) segments.push_back(group_.segment(rank));
  return memory_.upload(memory + segmentsAt, segments.data(), segments.size() * sizeof(segments[0]));
}

Status CudaComm::connect(const device::Program& program, uint32_t channels) {
  for (uint32_t l = 0; l < program.laneCount; ++l) {
    const device::Lane& lane = program.lanes()[l];
    for (uint32_t n = lane.firstLink; n < lane.firstLink + lane.linkCount; ++n) {
      const device::Link& link = program.links()[n];
      for (uint32_t channel = 0; channel < channels; ++channel) {
        const size_t at = comm_.linkIndex(channel, link.port, static_cast<uint32_t>(link.peer));
        if (link.sends != 0 ? senders_[at].sent != nullptr : receivers_[at].received != nullptr) continue;
        const int src = link.sends != 0 ? rank_ : link.peer;
        const int dst = link.sends != 0 ? link.peer : rank_;
        TUTTI_ASSIGN(const DeviceGroup::Connection connection, group_.connect(src, dst, channel, link.port));
        if (link.sends != 0) {
          senders_[at] = connection.sender;
          changedSenders_.push_back(at);
        } else {
          receivers_[at] = connection.receiver;
          changedReceivers_.push_back(at);
        }
      }
    }
  }
  TUTTI_TRY(upload(senders_, comm_.senders, changedSenders_));
  return upload(receivers_, comm_.receivers, changedReceivers_);
}

/// Neighbours in one copy, and nothing else: kernels read other entries meanwhile.
template <typename End>
Status CudaComm::upload(std::vector<End>& ends, const End* table, std::vector<size_t>& changed) {
  std::ranges::sort(changed);
  for (size_t first = 0; first < changed.size();) {
    size_t last = first + 1;
    while (last < changed.size() && changed[last] == changed[last - 1] + 1) ++last;
    const size_t at = changed[first];
    TUTTI_TRY(memory_.upload(const_cast<End*>(table) + at, &ends[at], (last - first) * sizeof(End)));
    first = last;
  }
  changed.clear();
  return Status::ok();
}

void CudaComm::abort() { std::atomic_ref(*abortFlag_).store(1, std::memory_order_release); }

bool CudaComm::aborted() const { return sharedLoad(*abortFlag_) != 0; }

Status CudaComm::reportedError() const {
  const device::Report& report = *report_;
  const auto error =
      static_cast<device::ErrorCode>(sharedLoad(report.error, std::memory_order_acquire));  // written last
  if (error == device::ErrorCode::none) return Status::ok();
  return invalidUsage(
      "rank {}: rank {} sent {} bytes where {} were expected: the ranks' calls do not match "
      "(channel {} lane {} step {})",
      rank_, sharedLoad(report.peer), sharedLoad(report.got), sharedLoad(report.expected),
      sharedLoad(report.channel), sharedLoad(report.lane), sharedLoad(report.step));
}

std::vector<device::Position> CudaComm::positions() const {
  std::vector<device::Position> waiting;
  for (const device::Position& shared : report_->positions) {
    device::Position position;
    position.waits = sharedLoad(shared.waits, std::memory_order_acquire);
    if (position.waits == 0) continue;
    position.peer = sharedLoad(shared.peer);
    position.call = sharedLoad(shared.call);
    position.channel = sharedLoad(shared.channel);
    position.lane = sharedLoad(shared.lane);
    position.step = sharedLoad(shared.step);
    position.iteration = sharedLoad(shared.iteration);
    position.flag = sharedLoad(shared.flag);
    position.slice = sharedLoad(shared.slice);
    waiting.push_back(position);
  }
  return waiting;
}

std::string toText(const device::Position& position) {
  std::string text = fmt::format("channel {} lane {} slice {} step {}", position.channel, position.lane,
                                 position.slice, position.step);
  switch (static_cast<device::WaitFor>(position.waits)) {
    case device::WaitFor::data:
      return text + fmt::format(" waits for data from rank {}", position.peer);
    case device::WaitFor::room:
      return text + fmt::format(" waits for room at rank {}", position.peer);
    case device::WaitFor::signal:
      return text + fmt::format(" waits for flag {} of rank {}", position.flag, position.peer);
    default:
      return text;
  }
}

}  // namespace tutti
