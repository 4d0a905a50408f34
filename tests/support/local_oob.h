// An OobChannel between threads of one process, for tests of the layers below the bootstrap.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "base/oob.h"

namespace tutti::test {

/// The mailboxes that the channels of one communicator share.
class LocalOobHub {
 public:
  explicit LocalOobHub(int size) : size_(size) {}
  int size() const { return size_; }

  void put(int from, int to, uint64_t tag, std::string_view bytes) {
    const std::lock_guard lock(mutex_);
    boxes_[{from, to, tag}].emplace_back(bytes);
    changed_.notify_all();
  }
  Result<std::string> take(int from, int to, uint64_t tag, Deadline deadline) {
    std::unique_lock lock(mutex_);
    auto& box = boxes_[{from, to, tag}];
    while (box.empty()) {
      if (deadline.passed()) return remoteError("rank {} sent nothing to rank {} in time", from, to);
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
    std::string bytes = std::move(box.front());
    box.erase(box.begin());
    return bytes;
  }

 private:
  int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::tuple<int, int, uint64_t>, std::vector<std::string>> boxes_;
};

class LocalOob final : public OobChannel {
 public:
  LocalOob(std::shared_ptr<LocalOobHub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  Result<std::vector<std::string>> allGather(std::string_view mine, Deadline deadline) override {
    for (int peer = 0; peer < size(); ++peer) hub_->put(rank_, peer, kCollective, mine);
    std::vector<std::string> all;
    for (int peer = 0; peer < size(); ++peer) {
      TUTTI_ASSIGN(auto bytes, hub_->take(peer, rank_, kCollective, deadline));
      all.push_back(std::move(bytes));
    }
    return all;
  }
  Status barrier(Deadline deadline) override { return allGather({}, deadline).status(); }
  Status send(int peer, uint64_t tag, std::string_view bytes, Deadline) override {
    hub_->put(rank_, peer, tag, bytes);
    return Status::ok();
  }
  Result<std::string> receive(int peer, uint64_t tag, Deadline deadline) override {
    return hub_->take(peer, rank_, tag, deadline);
  }

 private:
  static constexpr uint64_t kCollective = ~uint64_t{0};
  std::shared_ptr<LocalOobHub> hub_;
  int rank_;
};

}  // namespace tutti::test
