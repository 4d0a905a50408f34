#include "topology/sysfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <system_error>

#include "base/unique_fd.h"

namespace tutti {
namespace {

constexpr size_t kMaxFileBytes = 64 << 10;

// Not std::filesystem: where memory runs out, its functions end the process.

std::string canonicalOf(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> found(::realpath(path.c_str(), nullptr), std::free);
  return found == nullptr ? "" : found.get();
}

}  // namespace

Sysfs::Sysfs(const std::string& root) {
  root_ = canonicalOf(root);
  if (root_.empty()) root_ = root;  // nothing will be found there
  while (root_.ends_with('/')) root_.pop_back();
}

std::optional<std::string> Sysfs::text(const std::string& path) const {
  const UniqueFd file(::open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return std::nullopt;
  std::string text;
  std::array<char, 4096> buffer;
  while (text.size() < kMaxFileBytes) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string::npos) return std::nullopt;
  return text.substr(first, text.find_last_not_of(" \t\n") + 1 - first);
}

std::optional<int64_t> Sysfs::number(const std::string& path) const {
  const auto found = text(path);
  if (!found) return std::nullopt;
  std::string_view digits = *found;
  const bool hex = digits.starts_with("0x");
  if (hex) digits.remove_prefix(2);
  int64_t value = 0;
  const auto [end, code] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
  if (code != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::optional<std::vector<std::string>> Sysfs::names(const std::string& folder) const {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir((root_ + folder).c_str()), ::closedir);
  if (stream == nullptr) return std::nullopt;
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string_view name(static_cast<const char*>(entry->d_name));
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) return std::nullopt;
  std::ranges::sort(names);
  return names;
}

bool Sysfs::exists(const std::string& path) const { return ::access((root_ + path).c_str(), F_OK) == 0; }

std::optional<std::string> Sysfs::resolve(const std::string& path) const {
  const std::string found = canonicalOf(root_ + path);
  if (found.empty() || !found.starts_with(root_ + "/")) return std::nullopt;
  return found.substr(root_.size());
}

}  // namespace tutti
