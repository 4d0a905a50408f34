// Answers tutti-ras and NVIDIA's ncclras about the job that this process takes part in. On the service
// thread.
//
//   client                                    server
//     CLIENT PROTOCOL 2            ------->
//                                  <-------   SERVER PROTOCOL 2
//     TIMEOUT 5, SET FORMAT json   ------->
//                                  <-------   OK, each
//     STATUS  or  VERBOSE STATUS   ------->
//                                             asks the ranks (Monitor::survey)
//                                  <-------   text or JSON, then the end of the stream
//
// Lines end with \n, the greeting may be left out. Everything else (HTTP, garbage, long lines, silence) is
// answered with one ERROR line at most, and dropped.
//
// Two ways in: every process listens at an abstract Unix address (kRasSocketPrefix, pid, random number),
// which lets its own user and root in, and the first process of a host that can have it at the TCP port of
// NCCL_RAS_ADDR.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/io_service.h"
#include "base/socket.h"
#include "base/unique_fd.h"
#include "core/position.h"

namespace tutti {

constexpr const char* kRasSocketPrefix = "tutti-ras-";

class RasServer : public std::enable_shared_from_this<RasServer> {
 public:
  /// The one of this process; made when there is none, gone with the last who holds it. Null when
  /// NCCL_RAS_ENABLE is 0. Trouble (a port that is taken, no descriptors) is an INFO line.
  static std::shared_ptr<RasServer> ofProcess();
  ~RasServer();

  /// Tries to get the TCP port if another process has it. Cheap; for timers that run anyway.
  void takePort();

 private:
  struct Client;
  struct Query;
  struct Listener {
    UniqueFd fd;
    IoService::Id watch = 0;
  };
  RasServer() = default;
  void open();
  Status listen(Listener& listener, const SocketAddress& address);
  void accept(int fd, bool local);
  void ready(uint64_t key, uint32_t events);
  void handle(const std::shared_ptr<Client>& client);
  bool handleLine(const std::shared_ptr<Client>& client, std::string_view line);
  void query(const std::shared_ptr<Client>& client, bool verbose);
  void surveyNext(const std::shared_ptr<Query>& query);
  void finish(const std::shared_ptr<Query>& query);
  void say(const std::shared_ptr<Client>& client, std::string_view text, bool last);
  void flush(const std::shared_ptr<Client>& client);
  void drop(uint64_t key);

  std::mutex mutex_;  // guards the listeners; clients belong to the service thread
  Listener local_;
  Listener port_;
  SocketAddress address_;
  bool saidTaken_ = false;
  std::map<uint64_t, std::shared_ptr<Client>> clients_;
  uint64_t nextKey_ = 1;
};

}  // namespace tutti
