#include "system/network.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

#include "support/command.h"

namespace tutti::system_test {
namespace {

/// Runs `body` in a thread of its own, since a thread that has changed its namespace cannot be used further.
void inThread(const std::function<void()>& body) { std::thread(body).join(); }

}  // namespace

Network::Space::Space() {
  inThread([this] {
    if (::unshare(CLONE_NEWNET) != 0) return;
    // Addresses may be used at once. (Duplicates would be looked for during a second or two.)
    for (const char* which : {"all", "default"})
      std::ofstream(std::string("/proc/sys/net/ipv6/conf/") + which + "/accept_dad") << "0\n";
    fd_ = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  });
}

Network::Space::~Space() {
  if (fd_ >= 0) ::close(fd_);
}

std::string Network::whatIsMissing() {
  if (::geteuid() != 0) return "needs root";
  if (test::runCommand("ip -V").status != 0) return "needs ip (iproute2)";
  if (Space().fd() < 0) return "needs network namespaces";
  return {};
}

Network::Network(int hosts) : hosts_(static_cast<size_t>(hosts)) {
  for (int i = 0; i < hosts; ++i) ip(i, "link set lo up\n");
  ipOnSwitch(
      "link set lo up\n"
      "link add name bridge type bridge mcast_snooping 0\n"
      "link set bridge up\n");
}

void Network::plug(int host, bool linkLocalOnly) {
  const std::string port = "host" + std::to_string(host);
  // ip takes the namespace by a path when it has a slash.
  ip(host, "link add name eth0 type veth peer name " + port + " netns /proc/" + std::to_string(::getpid()) +
               "/fd/" + std::to_string(switch_.fd()) + "\n");
  ipOnSwitch("link set " + port + " master bridge\nlink set " + port + " up\n");
  // The kernel would add an address of its own, but some time later.
  ip(host, "link set eth0 addrgenmode none\nlink set eth0 up\naddress add fe80::" + std::to_string(host + 1) +
               "/64 dev eth0\n");
  if (!linkLocalOnly) ip(host, "address add " + addressOf(host) + "/24 dev eth0\n");
}

void Network::runIp(const Space& space, const std::string& lines) {
  inThread([&] {
    if (::setns(space.fd(), CLONE_NEWNET) != 0) {
      ADD_FAILURE() << "setns: " << ::strerror(errno);
      return;
    }
    const test::Outcome outcome = test::runCommand("{ ip -batch - <<'END'\n" + lines + "END\n}");
    EXPECT_EQ(outcome.status, 0) << lines << outcome.output;
  });
}

bool Network::enter(int host) const {
  return ::setns(hosts_[static_cast<size_t>(host)].fd(), CLONE_NEWNET) == 0;
}

bool becomeHost(const std::string& name, const std::string& hostsFile) {
  if (::unshare(CLONE_NEWNS | CLONE_NEWUTS) != 0) return false;
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  if (::mount("tmpfs", "/dev/shm", "tmpfs", 0, nullptr) != 0) return false;
  const char* const file = "/dev/shm/hosts";
  std::ofstream(file) << hostsFile;
  if (::mount(file, "/etc/hosts", nullptr, MS_BIND, nullptr) != 0) return false;
  return ::sethostname(name.data(), name.size()) == 0;
}

bool mayBecomeHost() {
  const pid_t child = ::fork();
  if (child == 0) _exit(becomeHost("node", "127.0.0.1 localhost\n") ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  return status == 0;
}

}  // namespace tutti::system_test
