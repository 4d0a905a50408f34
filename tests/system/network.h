// Hosts played by network namespaces, and the links between them: for tests of what a network may do to a
// job.
//
//        host 0        host 1        host 2
//          eth0          eth0          eth0        10.77.0.1, .2, .3 (plug)
//            |             |             |
//          host0         host1         host2
//     ------------------- bridge -------------------      the switch, a namespace of its own
//
// Namespaces and interfaces have no names outside: they exist for as long as this object (or a process
// inside).
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tutti::system_test {

class Network {
 public:
  /// What keeps this machine from playing networks; empty: nothing.
  static std::string whatIsMissing();

  /// Hosts with nothing but `lo`, which is up, and a switch. Must not be made while this process has used the
  /// library.
  explicit Network(int hosts);

  /// Gives a host eth0, on the switch, with fe80::(host + 1) and, unless `linkLocalOnly`, 10.77.0.(host +
  /// 1)/24.
  void plug(int host, bool linkLocalOnly = false);
  static std::string addressOf(int host) { return "10.77.0." + std::to_string(host + 1); }

  /// Runs lines of `ip -batch` on a host; each must succeed.
  void ip(int host, const std::string& lines) const { runIp(hosts_[static_cast<size_t>(host)], lines); }
  void ipOnSwitch(const std::string& lines) const { runIp(switch_, lines); }

  /// Takes this process, which must have one thread, to a host. False: it stays where it is.
  bool enter(int host) const;

 private:
  /// A network namespace, held by its descriptor.
  class Space {
   public:
    Space();  // a new one; fd() < 0 when there can be none
    ~Space();
    Space(Space&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Space& operator=(Space&&) = delete;
    int fd() const { return fd_; }

   private:
    int fd_ = -1;
  };
  static void runIp(const Space& space, const std::string& lines);

  std::vector<Space> hosts_;
  Space switch_;
};

/// Gives this process, which must have one thread, a host name, and its own /etc/hosts and /dev/shm.
bool becomeHost(const std::string& name, const std::string& hostsFile);
/// Whether that works here: in a folder that is a root but no mount, or without an /etc/hosts, it does not.
bool mayBecomeHost();

}  // namespace tutti::system_test
