// What differs between two configs.
#pragma once

#include <string>
#include <vector>

#include "nereus/app/config/config.h"

namespace nereus {

// "data.train_batch_size 64 → 32" for each option that has another value than in `before`, a
// config.yaml of a run (to_yaml's text). Options that only one of them has are left out, and so is
// whether a run is resumed.
std::vector<std::string> changed_settings(const std::string& before, const Config& now);

}  // namespace nereus
