// For tests: the golden numbers and samples made of lengths.
#pragma once

#include <filesystem>
#include <fstream>
#include <vector>

#include "nereus/core/base/json.h"
#include "nereus/runtime/rl/sample.h"

namespace nereus {

// testdata/rl-golden.json: hand-checked numbers, most of them verified against verl 0.9.1.
inline const Json& golden() {
  static const Json kGolden = Json::parse(std::ifstream(
      std::filesystem::path(NEREUS_SOURCE_DIR) / "src/nereus/runtime/rl/testdata/rl-golden.json"));
  return kGolden;
}

// The entries of a padded golden row where its mask is 1.
inline std::vector<double> unpadded(const Json& row, const Json& mask) {
  std::vector<double> values;
  for (size_t t = 0; t < row.size(); ++t) {
    if (mask[t] == 1) values.push_back(row[t]);
  }
  return values;
}

// Sample i has prompt {10 i, 10 i + 1} and as many response tokens 100 i, 100 i + 1, … as
// lengths[i].
inline Experience samples_of(const std::vector<int>& lengths) {
  Experience experience(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    experience[i].id = i;
    experience[i].prompt = {10 * number, 10 * number + 1};
    for (int t = 0; t < lengths[i]; ++t) experience[i].response.push_back(100 * number + t);
  }
  return experience;
}

}  // namespace nereus
