// What tutti-info has to say, collected: the library, the machine as Tutti sees it, the settings in force.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::info {

/// The libnccl.so.2 that our programs load: this installation's, unless LD_LIBRARY_PATH leads to another.
struct Library {
  std::string path;  // empty: none was found
  std::string why;   // then
  int version = 0;   // NCCL's code, 22809
  bool isOurs = false;
};

struct Interface {
  std::string name;
  std::string address;
  bool bootstrap = false;  // chosen for the bootstrap
  bool data = false;       // chosen for data
};

struct Transport {
  std::string name;
  bool available = false;
  std::string note;
};

struct Setting {
  std::string name;
  std::string value;
  std::string standard;
  std::string source;  // "environment", "/etc/nccl.conf:3", "default"
  bool isSet = false;
  std::string help;
};

struct Machine {
  std::string hostName;
  std::string hostId;
  unsigned processors = 0;  // that this process may use
  std::string simdTarget;
  std::vector<std::string> simdTargets;  // that CPU and build have
  std::string runtime;                   // "host", or why there is none
  int devices = 0;
  std::vector<Interface> interfaces;
  std::vector<Transport> transports;
};

struct Report {
  std::string tuttiVersion;
  std::string ncclVersion;
  std::string build;
  Library library;
  Machine machine;
  std::vector<Setting> settings;
  std::vector<std::string> warnings;
};

Report collect();

}  // namespace tutti::info
