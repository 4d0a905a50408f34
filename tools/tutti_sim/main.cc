// tutti-sim: what collectives take on clusters that need not exist, and proofs of the algorithms.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/algorithm_files.h"
#include "algorithms/algorithm_json.h"
#include "drawing/png.h"
#include "tutti_sim/options.h"
#include "tutti_sim/report.h"
#include "tutti_sim/study.h"
#include "tutti_sim/verify.h"

namespace tutti::simtool {
namespace {

Status writeFile(const std::string& path, const std::string& text) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "wbe"), std::fclose);
  if (file == nullptr) return systemError(errno, "open {}", path);
  if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() || std::fflush(file.get()) != 0)
    return systemError(errno, "write {}", path);
  return Status::ok();
}

/// The schedule of one rank, in the cluster's order of ranks.
Result<std::string> scheduleText(Study& study, const Options& options) {
  const int32_t ranks = options.ranks[0];
  TUTTI_ASSIGN(const std::vector<std::string> names, study.algorithmsFor(ranks));
  TUTTI_ASSIGN(const sim::Cluster* const cluster, study.cluster(ranks, sim::Protocol::simple, false));
  ScheduleRequest request;
  request.collective = options.collective;
  request.ranks = ranks;
  request.rank = *options.show;
  request.root = options.root;
  request.blocks = options.blocks;
  request.hosts = cluster->ranksOfHosts();
  if (options.json) {
    TUTTI_ASSIGN(const std::vector<Schedule> all, generateAll(names[0], request));
    return toJson(all);
  }
  TUTTI_ASSIGN(const Schedule schedule, generate(names[0], request));
  return toText(schedule);
}

/// What the proof of an algorithm file found.
Result<std::string> checkText(const Options& options) {
  TUTTI_ASSIGN(
      const ImportedAlgorithm algorithm,
      importAlgorithmFile(options.checkFile, options.ranksGiven ? options.ranks[0] : 0, options.root));
  const char* kinds = !algorithm.inPlace      ? "out of place only"
                      : !algorithm.outOfPlace ? "in place only"
                                              : "in place and out of place";
  return fmt::format("{}\n{}: proved for calls {}\n", algorithm.certificate.toText(), algorithm.name, kinds);
}

Result<std::string> answer(const Options& options) {
  if (options.verify) return verify(options);
  if (!options.checkFile.empty()) return checkText(options);
  TUTTI_ASSIGN(Study study, Study::make(options));
  if (options.show) return scheduleText(study, options);
  if (options.place) return placementText(study, options);
  TUTTI_ASSIGN(const std::vector<Row> rows, study.runAll());
  if (!options.plotFile.empty()) {
    const std::string svg = plotSvg(study, options, rows);
    TUTTI_TRY(options.plotFile.ends_with(".svg") ? writeFile(options.plotFile, svg)
                                                 : drawing::writePng(svg, options.plotFile));
  }
  return options.json ? jsonText(options, rows) : table(study, options, rows);
}

int run(int argc, char** argv) {
  std::string message;
  const Result<Options> options = parseOptions(argc, argv, &message);
  if (!options.isOk()) {
    std::fprintf(stderr, "tutti-sim: %s\nSee tutti-sim --help.\n", options.status().message().c_str());
    return 2;
  }
  const Result<std::string> text = options->exit ? Result<std::string>(message) : answer(*options);
  if (!text.isOk()) {
    std::fprintf(stderr, "tutti-sim: %s\n", text.status().message().c_str());
    return 1;
  }
  if (std::fwrite(text->data(), 1, text->size(), stdout) != text->size() || std::fflush(stdout) != 0) {
    std::fprintf(stderr, "tutti-sim: write: %s\n", std::strerror(errno));
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tutti::simtool

int main(int argc, char** argv) {
  try {
    return tutti::simtool::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tutti-sim: %s\n", error.what());
    return 1;
  }
}
