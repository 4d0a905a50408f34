// Reads /sys and /proc below a root folder, so that captured trees of other machines can be read too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

/// Nothing here fails: what cannot be read is absent. Paths are absolute, as on the machine itself.
class Sysfs {
 public:
  /// "/" is this machine.
  explicit Sysfs(const std::string& root);

  /// The text of a file without spaces around it, at most 64 KiB; absent also when it is empty.
  std::optional<std::string> text(const std::string& path) const;
  /// A decimal number, or a hexadecimal one behind 0x, that is all there is.
  std::optional<int64_t> number(const std::string& path) const;
  /// Names in a folder, in order; absent when it cannot be read.
  std::optional<std::vector<std::string>> names(const std::string& folder) const;
  bool exists(const std::string& path) const;
  /// The path without symbolic links, again as on the machine itself. Absent when it leads out of the root.
  std::optional<std::string> resolve(const std::string& path) const;

 private:
  std::string root_;  // without the last slash: "" is this machine
};

}  // namespace tutti
