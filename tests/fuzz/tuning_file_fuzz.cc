// A tuning file: parsed, written, parsed again, and used to choose.
#include "algorithms/selector.h"
#include "fuzz.h"

using namespace tutti;
using fuzz::require;

namespace {

void choices(const TuningFile& file) {
  static const auto& kShipped = *new std::shared_ptr<const CandidateSet>(CandidateSet::sharedShipped());
  SelectorSettings settings;
  settings.tuning = std::make_shared<const TuningFile>(file);
  const auto selector = Selector::create(kShipped, std::move(settings));
  require(selector.isOk() || selector.status().message().starts_with("t.csv:"),
          "an error names file and line");
  if (!selector.isOk()) return;
  for (const TuningEntry& entry : file.entries()) {
    SelectorInput input;
    input.collective = entry.collective;
    input.ranks = std::min(entry.ranks.value_or(4), 64);
    input.hosts = std::min(entry.hosts.value_or(1), input.ranks);
    input.allMapped = input.hosts == 1;
    input.maxChannels = 4;
    input.bytes = std::min(entry.minBytes, size_t{1} << 40);
    const auto choice = selector->choose(input);
    require(choice.isOk(), "something can run every call");
    require(choice->channels >= 1 && choice->channels <= 4, "on as many channels as there are");
    require(!selector->reasonText(*choice).empty(), "for a reason");
    require((choice->skippedLine == 0) == selector->skippedText(*choice, input).empty(),
            "what is skipped is said");
    if (file.entries().size() > 64) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = TuningFile::parse(fuzz::viewOf(data, size), "t.csv");
  if (!file.isOk()) {
    require(file.status().message().starts_with("t.csv:"), "an error names file and line");
    return 0;
  }
  const std::string written = file->text();
  const auto again = TuningFile::parse(written, "again.csv");
  require(again.isOk(), "what is written can be read");
  require(*again == *file, "and says the same");
  require(again->text() == written, "and is written the same");
  choices(*file);
  return 0;
}
