// tutti-info: what Tutti is, sees and is told on this machine.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string_view>

#include "base/log.h"
#include "base/unique_fd.h"
#include "tutti_info/report.h"

namespace {

constexpr const char* kUsage =
    "usage: tutti-info [--all] [--json]\n"
    "\n"
    "Shows version and build, the machine as Tutti sees it (host identity, network interfaces and which of "
    "them it\n"
    "would use, runtime and devices, instruction set, transports), the settings in force and where each "
    "comes from,\n"
    "and what is wrong with them.\n"
    "  --all    also settings that have their defaults\n"
    "  --json   one JSON object, with everything\n"
    "Exit status: 0, 1 when there are warnings, 2 for wrong use.\n";

/// Log lines (NCCL_DEBUG=INFO) would spoil the report, which tells the same: they go nowhere meanwhile.
tutti::info::Report collectQuietly() {
  const tutti::UniqueFd kept(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  const tutti::UniqueFd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  const bool quiet = kept && nowhere && ::dup2(nowhere.get(), STDOUT_FILENO) >= 0;
  tutti::info::Report report = tutti::info::collect();
  if (quiet) ::dup2(kept.get(), STDOUT_FILENO);
  return report;
}

int run(int argc, char** argv) {
  bool all = false, json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--all") {
      all = true;
    } else if (argument == "--json") {
      json = true;
    } else if (argument == "--help" || argument == "-h") {
      std::fputs(kUsage, stdout);
      return 0;
    } else if (argument == "--version") {
      std::printf("tutti-info %s\n", tutti::tuttiVersion());
      return 0;
    } else {
      std::fprintf(stderr, "tutti-info: unknown argument %s\n%s", argv[i], kUsage);
      return 2;
    }
  }
  const tutti::info::Report report = collectQuietly();
  const std::string text = json ? asJson(report) : asText(report, all);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    std::perror("tutti-info: write");
    return 1;
  }
  return report.warnings.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tutti-info: %s\n", error.what());
    return 1;
  }
}
