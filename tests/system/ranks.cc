#include "system/ranks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace tutti::system_test {
namespace {

constexpr auto kInitTime = std::chrono::seconds(30);

int runRank(int rank, int ranks, Path path, const RankProcesses::Body& body, const ChildSide& parent) {
  const int perHost = path == Path::sockets ? 1 : 2;
  if (path != Path::sharedMemory)
    ::setenv("NCCL_HOSTID", ("host" + std::to_string(rank / perHost)).c_str(), 1);
  ncclUniqueId id{};
  if (rank == 0) {
    must(ncclGetUniqueId(&id), "ncclGetUniqueId", parent);
    parent.say("id " + toHex(id));
  } else {
    parent.receive(&id, sizeof id);
  }
  Rank self{rank, ranks, nullptr};
  must(ncclCommInitRank(&self.comm, ranks, id, rank), "ncclCommInitRank", parent);
  return body(self, parent);
}

}  // namespace

std::string toHex(const ncclUniqueId& id) {
  std::string text;
  char digits[3];
  for (const char c : id.internal) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(c));
    text += digits;
  }
  return text;
}

ncclUniqueId fromHex(const std::string& text) {
  ncclUniqueId id{};
  for (size_t i = 0; i < sizeof id.internal && 2 * i + 1 < text.size(); ++i)
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return id;
}

void must(ncclResult_t result, const char* what, const ChildSide& parent, ncclComm_t comm) {
  if (result == ncclSuccess) return;
  parent.say(std::string("failed ") + what + ": " + ncclGetErrorString(result) + ": " +
             ncclGetLastError(comm));
  _exit(1);
}

void must(cudaError_t error, const char* what, const ChildSide& parent) {
  if (error == cudaSuccess) return;
  parent.say(std::string("failed ") + what + ": " + cudaGetErrorString(error));
  _exit(1);
}

const char* nameOf(Path path) {
  switch (path) {
    case Path::sharedMemory:
      return "SharedMemory";
    case Path::sockets:
      return "Sockets";
    case Path::hosts:
      return "Hosts";
  }
  return "?";
}

RankProcesses::RankProcesses(int ranks, Path path, const Body& body,
                             const std::function<void(int rank)>& prepare) {
  for (int rank = 0; rank < ranks; ++rank)
    children_.push_back(std::make_unique<Child>([=, &body](const ChildSide& parent) {
      if (prepare) prepare(rank);
      return runRank(rank, ranks, path, body, parent);
    }));
  const ncclUniqueId id = fromHex(children_[0]->expectLine("id ", in(kInitTime)));
  for (int rank = 1; rank < ranks; ++rank) children_[static_cast<size_t>(rank)]->send(&id, sizeof id);
}

void RankProcesses::expectSuccess(std::chrono::milliseconds time) {
  const auto deadline = in(time);
  for (int rank = 0; rank < size(); ++rank) {
    const int status = (*this)[rank].wait(deadline);
    if (status == 0) continue;
    std::string said;
    std::string line;
    while ((*this)[rank].readLine(line, in(std::chrono::milliseconds(0)))) said += line + "\n";
    ADD_FAILURE() << "rank " << rank << (status == -1 ? " did not end" : " failed") << " (status " << status
                  << "): " << said;
  }
}

}  // namespace tutti::system_test
