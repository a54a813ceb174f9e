// `nereus check`: everything that can be known before a device is touched.
#pragma once

#include <string>
#include <vector>

#include "nereus/app/config/config.h"

namespace nereus {

// What was checked and found fine, one line each: prompts, models, whether the reward can score
// responses to the prompts, and for every change of supply or response length within the run
// whether a plan fits. Throws Error as train() would; lines that start with "warning: " are what
// may stop the job later.
std::vector<std::string> check(const Config& config);

}  // namespace nereus
