// XML files with messages that say where: file, line, and the elements around.
//
// Header only: what does not read XML does not link pugixml. Whoever includes this links tutti_pugixml.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <pugixml.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace tutti {

/// The text of a file, `kind` in messages ("topology file"). Of a longer one a little more than `mostBytes`,
/// so that its parser can refuse it. A pipe that nobody writes to for five seconds is an error.
inline Result<std::string> readXmlFile(std::string_view kind, const std::string& path, size_t mostBytes) {
  constexpr int kPipeMilliseconds = 5000;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return systemError(errno, "open {} {}", kind, path);
  struct stat info {};
  const bool isPipe = ::fstat(file.get(), &info) == 0 && S_ISFIFO(info.st_mode);
  std::string text;
  std::array<char, 65536> buffer;
  while (text.size() <= mostBytes) {
    if (pollfd wait{file.get(), POLLIN, 0}; isPipe && ::poll(&wait, 1, kPipeMilliseconds) == 0)
      return systemError(ETIMEDOUT, "read {} {}: a pipe that nobody writes to", kind, path);
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || (isPipe && errno == EAGAIN))) continue;
    if (got < 0) return systemError(errno, "read {} {}", kind, path);
    if (got == 0) break;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  return text;
}

/// The text of a file, for line numbers in messages. All that it is given must outlive it.
class XmlSource {
 public:
  /// `identifying`: attributes that tell elements of a kind apart; messages show the first that an element
  /// has.
  XmlSource(std::string_view text, std::string_view file, std::span<const char* const> identifying)
      : file_(file), identifying_(identifying), size_(static_cast<ptrdiff_t>(text.size())) {
    for (size_t at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1))
      newlines_.push_back(static_cast<ptrdiff_t>(at));
  }
  std::string_view file() const { return file_; }
  std::span<const char* const> identifying() const { return identifying_; }
  int32_t line(ptrdiff_t offset) const {
    const auto before = std::ranges::lower_bound(newlines_, std::clamp<ptrdiff_t>(offset, 0, size_));
    return 1 + static_cast<int32_t>(before - newlines_.begin());
  }

 private:
  std::string_view file_;
  std::span<const char* const> identifying_;
  ptrdiff_t size_;
  std::vector<ptrdiff_t> newlines_;
};

/// An element with what is needed to speak about it. Valid as long as the document and the source.
class XmlElement {
 public:
  XmlElement(pugi::xml_node node, const XmlSource& source) : node_(node), source_(&source) {}

  pugi::xml_node node() const { return node_; }
  std::string_view name() const { return node_.name(); }
  int32_t line() const { return source_->line(node_.offset_debug()); }
  /// "file.xml:12: <gpu id="1"> <tb id="0"> <step s="3">"
  std::string where() const {
    std::string path;
    int depth = 0;
    for (pugi::xml_node at = node_; at.type() == pugi::node_element; at = at.parent()) {
      if (++depth > kShownDepth) {
        path.insert(0, "... ");
        break;
      }
      std::string shown = shorten(at.name());
      for (const char* name : source_->identifying())
        if (const pugi::xml_attribute id = at.attribute(name)) {
          shown += fmt::format(" {}=\"{}\"", name, shorten(id.value()));
          break;
        }
      path.insert(0, fmt::format("<{}>{}", shown, path.empty() ? "" : " "));
    }
    return fmt::format("{}:{}: {}", source_->file(), line(), path);
  }
  template <typename... Args>
  Status error(fmt::format_string<Args...> format, Args&&... args) const {
    return invalidUsage("{}: {}", where(), fmt::format(format, std::forward<Args>(args)...));
  }

  bool has(const char* attribute) const { return static_cast<bool>(node_.attribute(attribute)); }
  /// The text lives as long as the document.
  Result<std::string_view> string(const char* attribute) const {
    if (!has(attribute)) return error("attribute {} is missing", attribute);
    return std::string_view(node_.attribute(attribute).value());
  }
  /// A decimal number.
  template <typename Integer>
  Status number(const char* attribute, Integer low, Integer high, Integer* value) const {
    TUTTI_ASSIGN(const std::string_view digits, string(attribute));
    return parseNumber(attribute, digits, digits, 10, low, high, value);
  }
  /// A decimal number, or a hexadecimal one behind 0x or 0X.
  template <typename Integer>
  Status numberOrHex(const char* attribute, Integer low, Integer high, Integer* value) const {
    TUTTI_ASSIGN(const std::string_view text, string(attribute));
    const bool hex = text.starts_with("0x") || text.starts_with("0X");
    return parseNumber(attribute, text, hex ? text.substr(2) : text, hex ? 16 : 10, low, high, value);
  }
  Status flag(const char* attribute, bool* value) const {
    int32_t number01 = 0;
    TUTTI_TRY(number<int32_t>(attribute, 0, 1, &number01));
    *value = number01 != 0;
    return Status::ok();
  }
  Status onlyAttributes(std::span<const char* const> allowed) const {
    for (const pugi::xml_attribute attribute : node_.attributes())
      if (std::ranges::find(allowed, std::string_view(attribute.name())) == allowed.end())
        return error("unknown attribute {}", shorten(attribute.name()));
    return Status::ok();
  }
  /// The children, which must all be elements of that name, at most `limit`.
  Result<std::vector<XmlElement>> children(const char* expected, int32_t limit) const {
    std::vector<XmlElement> found;
    for (const pugi::xml_node child : node_.children()) {
      const XmlElement element(child, *source_);
      if (child.type() != pugi::node_element) return element.error("text where only elements belong");
      if (expected == nullptr) return element.error("nothing may stand inside <{}>", name());
      if (element.name() != expected) return element.error("only <{}> may stand here", expected);
      if (found.size() == static_cast<size_t>(limit)) return element.error("more than {} of them", limit);
      found.push_back(element);
    }
    return found;
  }

  /// What a message shows of text from a file.
  static std::string shorten(std::string_view text) {
    constexpr size_t kShown = 40;
    return std::string(text.substr(0, kShown)) + (text.size() > kShown ? "..." : "");
  }

 private:
  static constexpr int kShownDepth = 40;

  template <typename Integer>
  Status parseNumber(const char* attribute, std::string_view text, std::string_view digits, int base,
                     Integer low, Integer high, Integer* value) const {
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), *value, base);
    if (digits.empty() || code == std::errc::invalid_argument || end != digits.data() + digits.size())
      return error("attribute {}=\"{}\" is not an integer", attribute, shorten(text));
    if (code != std::errc() || *value < low || *value > high)
      return error("attribute {}=\"{}\" is not in {} .. {}", attribute, shorten(text), low, high);
    return Status::ok();
  }

  pugi::xml_node node_;
  const XmlSource* source_;
};

/// A document in memory, with what its elements need to speak about themselves. Stays where it is.
class XmlDocument {
 public:
  XmlDocument() = default;
  XmlDocument(const XmlDocument&) = delete;
  XmlDocument& operator=(const XmlDocument&) = delete;

  /// Parses `text`, of at most `mostBytes`, and gives its outermost element, which must be the only one and
  /// have that name. All arguments must outlive this. To be called once.
  Result<XmlElement> load(std::string_view text, std::string_view file, const char* name, size_t mostBytes,
                          std::span<const char* const> identifying) {
    if (text.size() > mostBytes)
      return invalidUsage("{}: {} bytes; at most {} are read", file, text.size(), mostBytes);
    const pugi::xml_parse_result parsed = document_.load_buffer(
        text.data(), text.size(), pugi::parse_minimal | pugi::parse_escapes, pugi::encoding_utf8);
    const XmlSource& source = source_.emplace(text, file, identifying);
    if (!parsed)
      return invalidUsage("{}:{}: not XML: {}", file, source.line(parsed.offset), parsed.description());
    const pugi::xml_node root = document_.document_element();
    const XmlElement element(root, source);
    if (element.name() != name) return element.error("the outermost element must be <{}>", name);
    if (root.next_sibling())
      return XmlElement(root.next_sibling(), source).error("one <{}> is all that is read", name);
    return element;
  }
  /// After load().
  const XmlSource& source() const { return *source_; }

 private:
  pugi::xml_document document_;
  std::optional<XmlSource> source_;
};

}  // namespace tutti
