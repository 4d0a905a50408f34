// The user's own algorithms: read from files, proved, found by name and by size.
//
//   TUTTI_ALGO_FILES ----> texts ----> digest: compared between all ranks when they meet
//   (files, folders)         |
//                            '-------> LoadedAlgorithms for p ranks: parsed, those for p ranks proved
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/candidates.h"
#include "algorithms/msccl_import.h"
#include "base/status.h"

namespace tutti {

/// Most files, and bytes of all together, that are read.
constexpr size_t kMostAlgorithmFiles = 256;
constexpr size_t kMostAlgorithmFileBytes = size_t{64} << 20;

/// Reads one file, JSON or XML by its content, and proves the algorithm: for `tutti-sim --check` and for
/// people. A JSON file may be for any number of ranks: then `ranks` says for which it is proved (0: the
/// smallest number that it names, or 4), and `root` for which root. Errors name file, place and reason.
Result<ImportedAlgorithm> importAlgorithmFile(const std::string& path, int32_t ranks = 0, int32_t root = 0);
/// The same of a text; `file` is for messages.
Result<ImportedAlgorithm> importAlgorithmText(std::string_view text, std::string_view file, int32_t ranks = 0,
                                              int32_t root = 0);

/// An algorithm from a file for a number of ranks, proved for every root that it is for. Never changes.
struct LoadedAlgorithm {
  std::string name;  // lower case; what NCCL_ALGO could not spell (, ; : ^ and spaces, for example) is _
  std::string file;
  Collective collective = Collective::allReduce;
  int32_t ranks = 1;
  uint64_t minBytes = 0;  // of the whole vector: all blocks, where the collective has blocks
  uint64_t maxBytes = UINT64_MAX;
  bool inPlace = false;  // which calls are proved; at least one
  bool outOfPlace = false;
  bool needsMapped = false;             // all ranks must share memory
  bool needsMappedUserBuffers = false;  // and map each other's user buffers
  Certificate certificate;              // of the first root
  /// By root; of collectives without one there is one set. Empty: not for that root.
  std::vector<ScheduleSet> byRoot;

  /// Null where it is not for that root.
  const ScheduleSet* schedules(int32_t root) const;
  /// Proved for all calls; see Candidate::inPlace.
  bool forAllCalls() const { return inPlace && outOfPlace; }
  /// For the selector and the planner.
  static Candidate candidate(std::shared_ptr<const LoadedAlgorithm> algorithm);
};

/// The texts of files, as they were read.
struct AlgorithmTexts {
  struct File {
    std::string path;
    std::string text;
  };
  std::vector<File> files;

  /// Reads files and folders, separated by commas. Of a folder: *.xml and *.json, by name. Errors name the
  /// path.
  static Result<AlgorithmTexts> read(std::string_view list);
  /// What ranks compare: "2 file(s), 0f3a...". The same for the same texts in the same order, wherever they
  /// lie.
  std::string digest() const;
};

/// The algorithms of a communicator. Never changes; thread-safe.
class LoadedAlgorithms {
 public:
  /// Parses all texts and proves the algorithms that are for that number of ranks; the others are skipped,
  /// with a line in the log. Errors name file, place and reason: a text that cannot be understood, a failed
  /// proof, a name that a shipped algorithm or another file has. What was proved once is not proved again in
  /// this process.
  static Result<std::shared_ptr<const LoadedAlgorithms>> load(const AlgorithmTexts& texts, int32_t ranks);

  const std::vector<std::shared_ptr<const LoadedAlgorithm>>& all() const { return all_; }
  /// Null when there is none of that name (case does not matter).
  const LoadedAlgorithm* find(std::string_view name) const;
  /// What a communicator may choose from: the shipped algorithms and these. An error (invalidUsage) where one
  /// needs more segments of scratch, or in a message, than memory of these sizes can hold.
  Result<std::shared_ptr<const CandidateSet>> withShipped(size_t slotBytes, size_t scratchBytes) const;

 private:
  std::vector<std::shared_ptr<const LoadedAlgorithm>> all_;
};

/// How many texts this process has parsed, and proved or refused: what is loaded again is not among them.
uint64_t algorithmFilesProved();

}  // namespace tutti
