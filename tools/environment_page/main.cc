// Writes the manual's page of settings from their declarations, to a file or to standard output.
#include <cstdio>
#include <string>
#include <string_view>

#include "base/params.h"

namespace {

constexpr const char* kHead =
    R"(# Settings

<!-- Made from the declarations in src/base/params.h. Do not edit: build the target `docs`. -->

A setting comes from the first of these that has it:

1. the environment;
2. the file that `NCCL_CONF_FILE` names; where that is not set, `~/.nccl.conf`;
3. `/etc/nccl.conf`;
4. the default.

Files hold lines `NAME=VALUE`; what follows `#` at the start of a line, or after a space, is a comment. Empty values
count as not set. Whole numbers may be decimal, hexadecimal (`0x10`) or octal (`020`); bytes may end with `K`, `M` or
`G`; words may have any case. A bad value is reported by one warning, which names variable, value, place and reason,
and the default is used. (`NCCL_ALGO`, `TUTTI_SIMD_TARGET` and files that cannot be understood fail the init of a
communicator instead; `TUTTI_HOST_DEVICES` leaves no device.) Everything is read once, when the library is first used.

`tutti-info` shows the settings in force on a machine and where each comes from. How these relate to NCCL's
variables, and which of NCCL's have no effect here, is in [compatibility.md](compatibility.md).
)";

constexpr const char* kTail =
    R"(
## Elsewhere

- `NCCL_CONF_FILE`: path of the configuration file, in place of `~/.nccl.conf`. Read from the environment only.
- `CUDA_VISIBLE_DEVICES`: which of the host runtime's devices a process sees; see [host-runtime.md](host-runtime.md).
- The measuring programs read `NCCL_TESTS_*`: see [perf.md](perf.md).
)";

std::string cell(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

std::string table(std::string_view prefix, std::string_view title) {
  std::string text = "\n## " + std::string(title) +
                     "\n\n| variable | values | default | meaning |\n| --- | --- | --- | --- |\n";
  for (const tutti::ParamBase* param : tutti::params().all()) {
    if (!std::string_view(param->name()).starts_with(prefix)) continue;
    const std::string standard = param->standardText().empty() ? "" : "`" + param->standardText() + "`";
    text += "| `" + std::string(param->name()) + "` | " + cell(param->type()) + " | " + standard + " | " +
            cell(param->help()) + " |\n";
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) {
    std::fprintf(stderr, "usage: environment_page [FILE]\n");
    return 2;
  }
  const std::string page =
      kHead + table("NCCL_", "NCCL's variables") + table("TUTTI_", "Tutti's own variables") + kTail;
  FILE* out = argc == 2 ? std::fopen(argv[1], "w") : stdout;
  if (out == nullptr) {
    std::perror(argv[1]);
    return 1;
  }
  const bool written = std::fwrite(page.data(), 1, page.size(), out) == page.size() && std::fflush(out) == 0;
  if (!written) std::perror("environment_page: write");
  return written ? 0 : 1;
}
