#include "core/ras_report.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/identity.h"
#include "base/log.h"
#include "base/params.h"
#include "core/stall_report.h"

namespace tutti {
namespace {

using State = RankPosition::State;
using std::chrono::milliseconds;

constexpr milliseconds kQuiet{1000};
constexpr size_t kMostListed = 16;

struct Group {
  std::vector<RankPosition> ranks;  // ascending
  std::vector<std::string> problems;
  std::string state;

  const RankPosition& front() const { return ranks.front(); }
  std::string title() const {
    return fmt::format("communicator '{}' (session {:016x})", front().communicator, front().session);
  }
};

milliseconds stallTime() {
  const milliseconds warn = params().stallWarn.time();
  return warn.count() == 0 ? milliseconds(30000) : warn;
}

void judge(Group& group) {
  bool running = false;
  bool failed = false;
  bool gone = false;
  uint64_t most = 0;
  for (const RankPosition& one : group.ranks) most = std::max(most, one.collectivesCalled);
  for (const RankPosition& one : group.ranks) {
    running = running || one.state == State::running;
    if (one.state == State::dead || one.state == State::silent) {
      gone = true;
      group.problems.push_back(one.who() + " " + one.standing());
    } else if (!one.note.empty() && one.state != State::left && !failed) {
      failed = true;  // what the others say follows from the first failure
      group.problems.push_back(one.who() + ": " + one.note);
    }
  }
  bool stalled = false;
  for (const RankPosition& one : group.ranks) {
    if (one.state != State::running || stalled || failed) continue;
    if (const auto never = contradiction(group.ranks, one.rank, kQuiet)) {
      group.problems.push_back(never->text);
      stalled = true;
    } else if (one.quietMs >= static_cast<uint64_t>(stallTime().count())) {
      group.problems.push_back(stallReport(group.ranks, one.rank));
      stalled = true;
    }
  }
  group.state = failed ? "FAILED" : stalled ? "STALLED" : gone ? "INCOMPLETE" : running ? "RUNNING" : "IDLE";
}

std::vector<Group> groupsOf(const std::vector<RankPosition>& positions) {
  std::map<uint64_t, std::map<int, const RankPosition*>> sessions;
  for (const RankPosition& one : positions) {
    const RankPosition*& known = sessions[one.session][one.rank];
    // A rank's own answer beats what others think of it.
    if (known == nullptr || known->state == State::silent) known = &one;
  }
  std::vector<Group> groups;
  for (const auto& [session, ranks] : sessions) {
    Group group;
    const RankPosition& any = *ranks.begin()->second;
    for (int rank = 0; rank < any.ranks; ++rank) {
      if (const auto found = ranks.find(rank); found != ranks.end()) {
        group.ranks.push_back(*found->second);
      } else {
        // No process was asked that has this rank: nothing is known, which is no fault of it.
        RankPosition unknown;
        unknown.session = session;
        unknown.communicator = any.communicator;
        unknown.ranks = any.ranks;
        unknown.rank = rank;
        group.ranks.push_back(std::move(unknown));
      }
    }
    judge(group);
    groups.push_back(std::move(group));
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Group& a, const Group& b) { return a.ranks.size() > b.ranks.size(); });
  return groups;
}

std::string json(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string jsonRank(const RankPosition& one) {
  std::string out = fmt::format(
      "{{\"rank\": {}, \"host\": {}, \"pid\": {}, \"device\": {}, \"state\": \"{}\", \"collectives_called\": "
      "{}, "
      "\"messages_called\": {}, \"collective\": {}, \"call\": {}, \"bytes\": {}, \"quiet_ms\": {}, \"note\": "
      "{}, "
      "\"waits\": [",
      one.rank, json(one.host), one.pid, one.device, nameOf(one.state), one.collectivesCalled,
      one.messagesCalled, one.collective,
      one.call.kind == CallName::Kind::none ? "null" : json(one.call.text()), one.call.bytes(), one.quietMs,
      one.note.empty() ? "null" : json(one.note));
  for (size_t i = 0; i < one.waits.size(); ++i) {
    const WaitFor& wait = one.waits[i];
    out += fmt::format(
        "{}{{\"peer\": {}, \"for\": {}, \"step\": {}, \"steps\": {}, \"slice\": {}, \"slices\": {}}}",
        i == 0 ? "" : ", ", wait.peer, json(nameOf(wait.what)), wait.step, wait.steps, wait.slice,
        wait.slices);
  }
  return out + "]}";
}

size_t countProblems(const std::vector<Group>& groups) {
  size_t count = 0;
  for (const Group& group : groups) count += group.problems.size();
  return count;
}

}  // namespace

std::string rasText(const std::vector<RankPosition>& positions, bool verbose) {
  const std::vector<Group> groups = groupsOf(positions);
  // Containers may have equal names, and process ids too.
  std::set<std::pair<std::string, uint64_t>> hosts;
  std::set<std::tuple<std::string, uint64_t, int64_t>> processes;
  for (const RankPosition& one : positions) {
    if (one.host.empty()) continue;
    hosts.insert({one.host, one.hostKey});
    processes.insert({one.host, one.hostKey, one.pid});
  }
  std::string text = fmt::format("Tutti {} (NCCL {}.{}.{}): answered by pid {} on host {}\n\n",
                                 tuttiVersion(), NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, ::getpid(), hostName());
  text += fmt::format("Job: {} communicator(s), {} process(es) on {} host(s)\n", groups.size(),
                      processes.size(), hosts.size());
  for (const Group& group : groups) {
    text += fmt::format("\nC{}: {} ranks: {}\n", group.title().substr(1), group.ranks.size(), group.state);
    std::map<std::pair<State, uint64_t>, size_t> alike;
    for (const RankPosition& one : group.ranks) ++alike[{one.state, one.collective}];
    size_t left = 0;
    const bool all = verbose || group.ranks.size() <= kMostListed;
    for (const RankPosition& one : group.ranks) {
      if (!all && 2 * alike[{one.state, one.collective}] > group.ranks.size()) {
        ++left;
        continue;
      }
      text += fmt::format("  {}{} {}{}\n", one.who(),
                          one.device < 0 ? "" : fmt::format(" device {}", one.device), one.standing(),
                          one.note.empty() || one.state == State::dead || one.state == State::left
                              ? ""
                              : "; failed: " + one.note);
    }
    if (left != 0) text += fmt::format("  {} more ranks are alike\n", left);
    for (const std::string& problem : group.problems) text += "  PROBLEM: " + problem + "\n";
  }
  const size_t problems = countProblems(groups);
  return text +
         (problems == 0 ? std::string("\nState: ok\n") : fmt::format("\nState: {} problem(s)\n", problems));
}

std::string rasJson(const std::vector<RankPosition>& positions) {
  const std::vector<Group> groups = groupsOf(positions);
  std::string text = fmt::format(
      "{{\"tutti_version\": {}, \"nccl_version\": \"{}.{}.{}\", \"host\": {}, \"pid\": {}, \"problems\": {}, "
      "\"communicators\": [",
      json(tuttiVersion()), NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, json(hostName()), ::getpid(),
      countProblems(groups));
  for (size_t g = 0; g < groups.size(); ++g) {
    const Group& group = groups[g];
    text += fmt::format(
        "{}\n{{\"name\": {}, \"session\": \"{:016x}\", \"size\": {}, \"state\": \"{}\", \"problems\": [",
        g == 0 ? "" : ",", json(group.front().communicator), group.front().session, group.ranks.size(),
        group.state);
    for (size_t i = 0; i < group.problems.size(); ++i) text += (i == 0 ? "" : ", ") + json(group.problems[i]);
    text += "], \"ranks\": [";
    for (size_t i = 0; i < group.ranks.size(); ++i)
      text += (i == 0 ? "\n" : ",\n") + jsonRank(group.ranks[i]);
    text += "]}";
  }
  return text + "]}\n";
}

}  // namespace tutti
