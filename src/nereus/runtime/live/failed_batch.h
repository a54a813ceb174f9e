// Keeping the batch of a step that met NaN or Inf.
#pragma once

#include <filesystem>

#include "nereus/runtime/rl/sample.h"

namespace nereus {

// Writes directory/failed_step_N.json, N = step + 1, with all samples; returns its path.
std::filesystem::path write_failed_batch(const std::filesystem::path& directory, int step,
                                         const Experience& experience);

}  // namespace nereus
