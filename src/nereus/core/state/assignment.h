// The best one-to-one assignment.
#pragma once

#include <cstdint>
#include <vector>

namespace nereus {

// A different column for each row so that the sum of worth[row][column] is as large as it can be.
// Requires rectangular `worth` with at least as many columns as rows. O(rows² · columns).
std::vector<int> best_assignment(const std::vector<std::vector<int64_t>>& worth);

}  // namespace nereus
