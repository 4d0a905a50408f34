// tutti-ras: shows where the ranks of running jobs stand, and who waits for whom.
#include <getopt.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tutti_ras/ras_client.h"

namespace {

constexpr const char* kUsage =
    "usage: tutti-ras [-v] [--json] [--pid PID | --host HOST] [--port PORT] [-t SECONDS]\n"
    "\n"
    "Shows the communicators of running jobs, their ranks, and where each rank stands: the call that it is "
    "in, whom it\n"
    "waits for and since when, which ranks lag or are dead. Without --pid, --host and --port: all jobs of "
    "this host.\n"
    "\n"
    "  -v, --verbose         every rank of large communicators, too\n"
    "  -f, --format=FORMAT   text or json; --json is short for -f json. JSON: {\"jobs\": [...]}\n"
    "      --pid=PID         ask this process, about the job that it takes part in\n"
    "  -h, --host=HOST       ask at this host (localhost)\n"
    "  -p, --port=PORT       and port (28028), as in the job's NCCL_RAS_ADDR\n"
    "  -t, --timeout=SECONDS wait so long for ranks to answer (5)\n"
    "      --help, --version (-h without a host shows this text, too)\n"
    "\n"
    "exit status: 0 all is well; 1 no job found, or it does not answer; 2 wrong usage;\n"
    "             3 a rank is stalled or dead, or the ranks' calls do not match\n";

/// A process that lives answers a greeting at once.
constexpr std::chrono::milliseconds kHelloLimit{2000};

struct Options {
  tutti::RasQuestion question;
  std::string host;
  std::string port;
  long pid = 0;
};

[[noreturn]] void misuse(const std::string& message) {
  std::fprintf(stderr, "tutti-ras: %s\n--help shows all options\n", message.c_str());
  std::exit(2);
}

long number(const char* text, const char* what, long most) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < 1 || value > most)
    misuse(std::string(what) + " must be a number from 1 to " + std::to_string(most) + ", not \"" + text +
           "\"");
  return value;
}

Options parse(int argc, char** argv) {
  enum { kJson = 1000, kPid, kHelp, kVersion };
  static const option kOptions[] = {
      {"verbose", no_argument, nullptr, 'v'},       {"format", required_argument, nullptr, 'f'},
      {"json", no_argument, nullptr, kJson},        {"pid", required_argument, nullptr, kPid},
      {"host", required_argument, nullptr, 'h'},    {"port", required_argument, nullptr, 'p'},
      {"timeout", required_argument, nullptr, 't'}, {"help", no_argument, nullptr, kHelp},
      {"version", no_argument, nullptr, kVersion},  {nullptr, 0, nullptr, 0}};
  Options options;
  opterr = 0;
  for (int one = 0; (one = ::getopt_long(argc, argv, "vf:h:p:t:", kOptions, nullptr)) != -1;) {
    switch (one) {
      case 'v':
        options.question.verbose = true;
        break;
      case 'f':
        if (std::string_view(optarg) != "text" && std::string_view(optarg) != "json")
          misuse(std::string("the format is text or json, not \"") + optarg + "\"");
        options.question.json = std::string_view(optarg) == "json";
        break;
      case kJson:
        options.question.json = true;
        break;
      case kPid:
        options.pid = number(optarg, "--pid", 1L << 30);
        break;
      case 'h':
        options.host = optarg;
        break;
      case 'p':
        options.port = std::to_string(number(optarg, "--port", 65535));
        break;
      case 't':
        options.question.timeoutSeconds = static_cast<int>(number(optarg, "--timeout", 600));
        break;
      case kHelp:
        std::fputs(kUsage, stdout);
        std::exit(0);
      case kVersion:
        std::puts("tutti-ras " TUTTI_VERSION);
        std::exit(0);
      default:
        if (optopt == 'h' && std::string_view(argv[argc - 1]) == "-h") {  // as elsewhere: help
          std::fputs(kUsage, stdout);
          std::exit(0);
        }
        misuse(std::string("unknown option, or one without its value: ") + argv[optind - 1]);
    }
  }
  if (optind < argc) misuse(std::string("what is \"") + argv[optind] + "\"?");
  if (options.pid != 0 && (!options.host.empty() || !options.port.empty()))
    misuse("--pid goes without --host and --port");
  return options;
}

std::string hostName() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  const std::string_view text = name;
  return std::string(text.substr(0, text.find('.')));
}

/// Processes of this host that an answer tells of (in JSON: "host": "node7", "pid": 4242).
std::set<long> coveredBy(const std::string& json) {
  std::set<long> pids;
  const std::string mark = "\"host\": \"" + hostName() + "\", \"pid\": ";
  for (size_t at = json.find(mark); at != std::string::npos; at = json.find(mark, at + 1))
    pids.insert(std::strtol(json.c_str() + at + mark.size(), nullptr, 10));
  return pids;
}

bool tellsOfProblems(const std::string& reply, bool json) {
  return json ? reply.find("\"problems\": 0, ") == std::string::npos
              : reply.find("\nState: ok\n") == std::string::npos;
}

/// Leaves out processes that do not answer at all, and names them: they are stopped, or so busy that they
/// might as well be.
std::vector<tutti::RasTarget> withoutSilent(const std::vector<tutti::RasTarget>& targets) {
  std::vector<tutti::RasTarget> answering;
  const std::vector<bool> silent = tutti::silentTargets(targets, kHelloLimit);
  for (size_t i = 0; i < targets.size(); ++i) {
    if (silent[i])
      std::fprintf(stderr, "tutti-ras: %s does not answer (is it stopped?)\n", targets[i].text().c_str());
    else
      answering.push_back(targets[i]);
  }
  return answering;
}

/// One target for each job.
std::vector<tutti::RasTarget> onePerJob(std::vector<tutti::RasTarget> targets, int timeout) {
  if (targets.size() < 2) return targets;
  std::vector<tutti::RasTarget> chosen;
  std::set<long> covered;
  for (const tutti::RasTarget& target : targets) {
    if (covered.count(target.pid) != 0) continue;
    const tutti::RasReply reply =
        tutti::askRas(target, {.verbose = false, .json = true, .timeoutSeconds = timeout});
    if (reply.text.empty()) continue;  // another user's, or just ended
    const std::set<long> more = coveredBy(reply.text);
    covered.insert(more.begin(), more.end());
    chosen.push_back(target);
  }
  return chosen.empty() ? targets : chosen;
}

std::vector<tutti::RasTarget> choose(const Options& options) {
  std::vector<tutti::RasTarget> targets;
  if (options.host.empty() && options.port.empty()) {
    targets = tutti::localRasTargets();
    if (options.pid != 0) {
      std::erase_if(targets, [&](const auto& one) { return one.pid != options.pid; });
      return targets;
    }
    if (!targets.empty()) return onePerJob(withoutSilent(targets), options.question.timeoutSeconds);
  }
  tutti::RasTarget target;
  target.host = options.host.empty() ? "localhost" : options.host;
  target.port = options.port.empty() ? "28028" : options.port;
  targets.push_back(target);
  return targets;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const std::vector<tutti::RasTarget> targets = choose(options);
  if (targets.empty() && options.pid == 0) {
    std::fprintf(stderr, "tutti-ras: no job answers\n");
    return 1;
  }
  if (targets.empty()) {
    std::fprintf(stderr, "tutti-ras: process %ld has no communicator, or NCCL_RAS_ENABLE=0\n", options.pid);
    return 1;
  }
  size_t answers = 0;
  bool problems = false;
  std::string text;
  for (const tutti::RasTarget& target : targets) {
    const tutti::RasReply reply = tutti::askRas(target, options.question);
    if (reply.text.empty()) {
      std::fprintf(stderr, "tutti-ras: %s\n", reply.error.c_str());
      continue;
    }
    problems = problems || tellsOfProblems(reply.text, options.question.json);
    if (answers++ != 0) text += options.question.json ? ",\n" : "\n";
    text += reply.text;
  }
  if (answers == 0) {
    std::fprintf(stderr, "tutti-ras: no job answers\n");
    return 1;
  }
  if (options.question.json) text = "{\"jobs\": [" + text + "]}\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0) {
    std::fprintf(stderr, "tutti-ras: cannot write the answer: %s\n", std::strerror(errno));
    return 1;
  }
  return problems ? 3 : 0;
}
