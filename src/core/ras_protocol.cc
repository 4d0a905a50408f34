#include "core/ras_protocol.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace tutti {
namespace {

std::string upper(std::string_view text) {
  std::string out;
  for (const char c : text) out.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  return out;
}

}  // namespace

RasCommand parseRasCommand(std::string_view line) {
  using Kind = RasCommand::Kind;
  const std::string text = upper(line);
  RasCommand command;
  if (text.starts_with("CLIENT PROTOCOL ")) {
    command.kind = Kind::protocol;
  } else if (text.starts_with("TIMEOUT ")) {
    uint32_t seconds = 0;
    const auto [end, error] = std::from_chars(text.data() + 8, text.data() + text.size(), seconds);
    if (error != std::errc() || end != text.data() + text.size()) return command;
    command.kind = Kind::timeout;
    command.limit =
        seconds == 0 ? kLongestRasLimit
                     : std::min<std::chrono::milliseconds>(std::chrono::seconds(seconds), kLongestRasLimit);
  } else if (text == "SET FORMAT TEXT" || text == "SET FORMAT JSON") {
    command.kind = Kind::format;
    command.json = text.ends_with("JSON");
  } else if (text == "STATUS" || text == "VERBOSE STATUS") {
    command.kind = Kind::status;
    command.verbose = text.starts_with("VERBOSE");
  } else if (text.starts_with("MONITOR")) {
    command.kind = Kind::monitor;
  }
  return command;
}

std::optional<std::string> RasLines::next() {
  const size_t end = bytes_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = bytes_.substr(0, end);
  bytes_.erase(0, end + 1);
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return line;
}

std::string printableRasText(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 60)) out.push_back(c >= 0x20 && c < 0x7f ? c : '.');
  return out;
}

}  // namespace tutti
