// What a RAS client says, in pieces: "<size of a piece><bytes>". However it is cut, the commands are the
// same, and nothing that is not a line is kept for long.
#include <algorithm>
#include <string>
#include <vector>

#include "core/ras_protocol.h"
#include "fuzz.h"

using namespace tutti;
using fuzz::require;

namespace {

void checkCommand(const std::string& line) {
  const RasCommand command = parseRasCommand(line);
  const bool isTimeout = command.kind == RasCommand::Kind::timeout;
  require(isTimeout ? command.limit.count() >= 1000 && command.limit <= kLongestRasLimit
                    : command.limit.count() == 0,
          "a limit is between a second and the longest, and only with TIMEOUT");
  require(!command.json || command.kind == RasCommand::Kind::format, "JSON only with SET FORMAT");
  require(!command.verbose || command.kind == RasCommand::Kind::status, "verbose only with STATUS");
  const std::string shown = printableRasText(line);
  require(shown.size() <= 60, "no long lines in the log");
  for (const char c : shown) require(c >= 0x20 && c < 0x7f, "no control characters in the log");
}

/// The lines until the client would be dropped.
std::vector<std::string> linesOf(std::string_view bytes, size_t piece) {
  RasLines lines;
  std::vector<std::string> found;
  while (!bytes.empty()) {
    const size_t now = std::min(piece, bytes.size());
    lines.append(bytes.substr(0, now));
    bytes.remove_prefix(now);
    while (auto line = lines.next()) found.push_back(*line);
    if (lines.overflown()) break;
    require(lines.rest().size() <= RasLines::kLongest, "an unfinished line is short");
  }
  return found;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view bytes = fuzz::viewOf(data + 1, size - 1);
  const auto byByte = linesOf(bytes, 1);
  const auto inPieces = linesOf(bytes, 1 + data[0]);
  // A longer piece may end a line that came byte by byte would be too long: then there is more of it.
  require(byByte.size() <= inPieces.size(), "pieces lose no line");
  for (size_t i = 0; i < byByte.size(); ++i)
    require(byByte[i] == inPieces[i], "lines do not depend on pieces");
  for (const std::string& line : inPieces) checkCommand(line);
  return 0;
}
