// The lines of a run's metrics.jsonl and events.jsonl, read back: by a run that goes on, by its
// summary and by `nereus explain`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "nereus/core/base/json.h"

namespace nereus {

enum class RecordKind { kMetrics, kEvents };

struct Records {
  std::vector<Json> lines;  // each as a run writes it
  // Of each line that is not, and was left out: file, line, key and what is wrong.
  std::vector<std::string> problems;
};

// None if the file is missing. A last line that was cut off is left out without a word: the run
// that wrote it was ended there. Throws Error(kInvalidInput) if it is no regular file.
Records read_records(const std::filesystem::path& file, RecordKind kind);

// Whether a value is as a run writes it: known keys have their types, steps and counts are within
// range; null stands for what could not be measured. Throws Error(kInvalidInput) naming `where` and
// the key.
void verify_metrics(const Json& line, const std::string& where);
void verify_event(const Json& event, const std::string& where);

// Values of a line: 0 or "" if it has none, or null.
double number_in(const Json& line, const char* key);
std::string text_in(const Json& line, const char* key);
bool flag_in(const Json& line, const char* key);
int step_in(const Json& line);
// What lies under the key, or null.
Json value_in(const Json& line, const char* key);

}  // namespace nereus
