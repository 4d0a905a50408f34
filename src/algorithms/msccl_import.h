// Turns a parsed MSCCL algorithm into schedules and proves them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "algorithms/checker.h"
#include "algorithms/msccl_xml.h"
#include "base/status.h"

namespace tutti {

/// An algorithm from a file, ready to run: for exactly schedules.size() ranks.
struct ImportedAlgorithm {
  std::string name;
  std::string file;
  Collective collective = Collective::allReduce;
  ScheduleSet schedules;
  uint64_t minBytes = 0;
  uint64_t maxBytes = UINT64_MAX;
  /// Which kinds of calls are proved; at least one.
  bool inPlace = false;
  bool outOfPlace = false;
  Certificate certificate;
};

/// Proves `algorithm.schedules` for calls out of place and in place (each: unless it is promised not to be
/// for them), and sets inPlace, outOfPlace and certificate. An error where neither holds, or one that was
/// promised does not. A call where some ranks are in place and others are not is right when both are: nothing
/// that a rank sends depends on where its own result goes, since it reads nothing but contributions from its
/// input.
Status proveKinds(ImportedAlgorithm& algorithm, std::optional<bool> inPlace = {},
                  std::optional<bool> outOfPlace = {});

/// How the parts of the format become ours:
///   thread block          a lane
///   chan                  a port
///   chunk                 a segment; a step over cnt chunks becomes cnt steps of one (both ends split alike)
///   depid, deps           a flag between two lanes of the rank; waits that others imply are left out
///   i, o, s               input, output, private scratch
///   rrc and its like      the operand of the lower rank comes first, so exchanges agree bitwise
/// MSCCL writes to inputs and, in place, uses i and o as names of one buffer; we may do neither. A chunk of i
/// that is written moves to the output (in place) or to additional scratch: its contribution is read from the
/// input up to the first write where one lane alone uses it, and is copied over at the start where several
/// do. The marks that our steps need and the file lacks (sizes of scratch, finalize) are found by symbolic
/// execution. Lanes that reuse scratch in the next slices are ordered by two more flags where the proof fails
/// without them.
///
/// Errors name file, GPU, thread block and step, or are the checker's.
Result<ImportedAlgorithm> importMscclProgram(const MscclProgram& program);

/// parseMscclXml() and importMscclProgram(): from the text of a file to schedules that may run.
Result<ImportedAlgorithm> importMscclXml(std::string_view text, std::string_view fileName);

}  // namespace tutti
