// Values of environment variables: "<index of the variable><value>". Everything that reads settings runs on
// it.
#include <fcntl.h>
#include <unistd.h>

#include "algorithms/selector.h"
#include "base/log.h"
#include "base/params.h"
#include "base/socket.h"
#include "fuzz.h"

using namespace tutti;
using fuzz::require;

namespace {

/// The log goes nowhere; it is read, and written to, all the same.
bool silence() {
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ::dup2(nowhere, STDOUT_FILENO);
  ::setenv("NCCL_DEBUG", "INFO", 1);
  return true;
}

std::vector<NetworkInterface> someInterfaces() {
  std::vector<NetworkInterface> all;
  const char* const addresses[] = {"127.0.0.1:0", "10.1.2.3:0", "[fe80::1]:0", "[2001:db8::7]:0",
                                   "172.17.0.1:0"};
  const char* const names[] = {"lo", "eth0", "eth0", "ib0", "docker0"};
  for (size_t i = 0; i < 5; ++i) {
    NetworkInterface one;
    one.name = names[i];
    one.address = *SocketAddress::parse(addresses[i]);
    one.prefixBits = 24;
    all.push_back(one);
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static const bool kSilent = silence();
  static const std::vector<NetworkInterface> kInterfaces = someInterfaces();
  if (size < 1) return 0;
  const auto& all = params().all();
  const ParamBase& param = *all[data[0] % all.size()];
  const std::string name = param.name();
  const std::string value(
      fuzz::viewOf(data + 1, size - 1).substr(0, fuzz::viewOf(data + 1, size - 1).find('\0')));
  // Files that it names would be written or read; names that it holds would be asked of name servers.
  if (name == "NCCL_DEBUG_FILE" || name == "TUTTI_SECRET_FILE") return 0;
  if (name == "NCCL_COMM_ID" && value.find_first_not_of("0123456789.:[]%-+ ") != std::string::npos) return 0;

  const std::string before = name == "NCCL_DEBUG" ? "INFO" : "";
  ::setenv(name.c_str(), value.c_str(), 1);
  params().reload();
  const bool complained = !params().problems().empty();
  const std::string shown = param.valueText();
  require(!complained || params().problems()[0].starts_with(name + "="), "a problem names the variable");
  require(!complained || !param.isSet(), "a bad value leaves the default");
  require(!complained || shown == param.standardText(), "a bad value leaves the default's text");
  require(param.isSet() || shown == param.standardText(), "what is not set has the default");
  logInfo(Subsystem::env, "with {} bytes", value.size());
  if (const auto rules = AlgorithmFilter::parse(value); !rules.isOk())
    require(!rules.status().message().empty(), "an error of NCCL_ALGO has a text");
  InterfaceRules rules = interfaceRulesFromParams((data[0] & 1) != 0);
  rules.names = value;
  for (const NetworkInterface& one : chooseInterfaces(kInterfaces, rules)) {
    bool known = false;
    for (const NetworkInterface& other : kInterfaces) known = known || other.name == one.name;
    require(known, "only interfaces that exist are chosen");
  }
  if (param.isSet()) {
    // What is shown means the same when it is set.
    ::setenv(name.c_str(), shown.c_str(), 1);
    params().reload();
    require(param.valueText() == shown, "the text of a value gives the value");
  }
  if (before.empty()) {
    ::unsetenv(name.c_str());
  } else {
    ::setenv(name.c_str(), before.c_str(), 1);
  }
  return 0;
}
