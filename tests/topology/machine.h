// A /sys and /proc of a machine that does not exist.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace tutti::test {

/// Removed at the end.
class Machine {
 public:
  Machine() : root_(testing::TempDir() + "tutti_machine_XXXXXX") {
    EXPECT_NE(::mkdtemp(root_.data()), nullptr);
    root_ = std::filesystem::canonical(root_);
  }
  ~Machine() { std::filesystem::remove_all(root_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  const std::string& root() const { return root_; }
  void file(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << '\n';
  }
  /// Relative, as all links in /sys are.
  void link(const std::string& path, const std::string& target) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::filesystem::create_directories(root_ + target);
    std::filesystem::create_directory_symlink(
        std::filesystem::relative(root_ + target, std::filesystem::path(root_ + path).parent_path()),
        root_ + path);
  }
  void numa(int node, const std::string& mask) {
    file("/sys/devices/system/node/node" + std::to_string(node) + "/cpumap", mask);
  }
  void intel() {
    file("/proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n");
  }
  /// `below`: path below /sys/devices, "pci0000:00/0000:00:01.0/0000:01:00.0".
  void pci(const std::string& below, const std::map<std::string, std::string>& fields) {
    const std::string path = "/sys/devices/" + below;
    for (const auto& [name, value] : fields) file(path + "/" + name, value);
    link("/sys/bus/pci/devices/" + below.substr(below.rfind('/') + 1), path);
  }
  /// A CPU of package 0 whose core, L2 (1 MiB) and L3 (32 MiB) it shares with the CPUs of these lists.
  void cpu(int number, const std::string& core, const std::string& l3, int package = 0) {
    const std::string path = "/sys/devices/system/cpu/cpu" + std::to_string(number);
    file(path + "/topology/physical_package_id", std::to_string(package));
    file(path + "/topology/thread_siblings_list", core);
    const auto cache = [&](const char* index, const char* level, const char* size, const std::string& cpus) {
      file(path + "/cache/" + index + "/level", level);
      file(path + "/cache/" + index + "/size", size);
      file(path + "/cache/" + index + "/shared_cpu_list", cpus);
    };
    cache("index0", "1", "32K", core);
    cache("index1", "1", "32K", core);
    cache("index2", "2", "1024K", core);
    cache("index3", "3", "32768K", l3);
  }
  void net(const std::string& name, const std::string& device, const std::string& speed) {
    const std::string path = "/sys/devices/" + device + "/net/" + name;
    if (!speed.empty()) file(path + "/speed", speed);
    file(path + "/operstate", "up");
    link(path + "/device", "/sys/devices/" + device);
    link("/sys/class/net/" + name, path);
  }
  void ib(const std::string& name, const std::string& device, const std::string& rate,
          const std::string& state) {
    const std::string path = "/sys/devices/" + device + "/infiniband/" + name;
    file(path + "/sys_image_guid", "0c42:a103:0012:3456");
    file(path + "/ports/1/rate", rate);
    file(path + "/ports/1/state", state);
    link(path + "/device", "/sys/devices/" + device);
    link("/sys/class/infiniband/" + name, path);
  }

 private:
  std::string root_;
};

}  // namespace tutti::test
