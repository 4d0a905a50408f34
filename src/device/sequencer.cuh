// The order of a lane's steps: its program once a slice; in it blocks, iterations, steps.
#pragma once

#include "device/lane.cuh"

namespace tutti::device::TUTTI_KERNELS {

/// Calls run(step) for each step, the cursor standing on it. False as soon as one says false.
template <class Run>
TUTTI_DEVICE bool walk(LaneView& view, const Lane& lane, Run&& run) {
  const Program& program = view.program();
  for (view.cursor.slice = 0; view.cursor.slice < view.call().slices; ++view.cursor.slice) {
    for (uint32_t b = 0; b < lane.blockCount; ++b) {
      const Block block = program.blocks()[lane.firstBlock + b];
      for (view.cursor.iteration = 0; view.cursor.iteration < block.iterations; ++view.cursor.iteration) {
        for (uint32_t s = 0; s < block.stepCount; ++s) {
          const Step& step = program.steps()[block.firstStep + s];
          view.cursor.step = step.number;
          note("step", step.number);
          if (!run(step)) return false;
        }
      }
    }
  }
  return true;
}

}  // namespace tutti::device::TUTTI_KERNELS
