// gpu-report: makes results.json and results.md of what `run` of scripts/gpu-check left in a folder.
#include <cstdio>
#include <exception>
#include <string>

#include "gpu_check/report.h"

namespace {

bool write(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (!file) return false;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && written;
}

int report(const std::string& folder) {
  using tutti::gpu_check::Json;
  const Json made = tutti::gpu_check::makeReport(folder);
  const std::string json = made.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (!write(folder + "/results.json", json) ||
      !write(folder + "/results.md", tutti::gpu_check::describe(made))) {
    std::fprintf(stderr, "gpu-report: cannot write to %s\n", folder.c_str());
    return 2;
  }
  for (const Json& problem : made["problems"]) std::printf("wrong: %s\n", problem.get<std::string>().c_str());
  return tutti::gpu_check::isRight(made) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] == '-') {
    std::fputs("usage: gpu-report FOLDER\nStatus 0: everything was right, 1: something was wrong.\n", stderr);
    return 2;
  }
  try {
    return report(argv[1]);
  } catch (const std::exception& error) {  // JSON that has not the form that perf programs write
    std::fprintf(stderr, "gpu-report: %s\n", error.what());
    return 2;
  }
}
