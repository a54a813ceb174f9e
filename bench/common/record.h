// What every bench writes down besides its numbers.
#pragma once

#include <filesystem>
#include <vector>

#include "nereus/core/base/json.h"

namespace nereus::bench {

// {"date", "command", "machine": {"cpu", "cores", "compiler"}}
Json record_head(int argc, const char* const* argv);
// Writes a record for people and programs to read; throws Error(kIo).
void write_record(const std::filesystem::path& file, const Json& record);

// 0 ≤ fraction ≤ 1; the middle one for 0.5. `values` must not be empty.
double quantile(std::vector<double> values, double fraction);

}  // namespace nereus::bench
