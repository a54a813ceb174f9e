#include "nereus/app/observe/records.h"

#include <cstdint>
#include <fstream>
#include <span>
#include <string_view>
#include <system_error>

#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"
#include "nereus/core/plan/plan.h"
#include "nereus/runtime/files/regular_file.h"

namespace nereus {

namespace {

constexpr size_t kMostLineBytes = size_t{64} << 20U;
constexpr int kMostSteps = 1 << 30;
constexpr int64_t kMostTokens = int64_t{1} << 40U;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::kInvalidInput, what); }

enum class FieldType { kNumber, kWhole, kText, kFlag };
struct Field {
  const char* key;
  FieldType type;
};

constexpr Field kDecision[] = {
    {"trigger", FieldType::kText},       {"trigger_detail", FieldType::kText},
    {"urgent", FieldType::kFlag},        {"current_step_s", FieldType::kNumber},
    {"best_step_s", FieldType::kNumber}, {"transition_s", FieldType::kNumber},
    {"overlapped", FieldType::kFlag},    {"hidden_s", FieldType::kNumber},
    {"gain_s", FieldType::kNumber},      {"horizon", FieldType::kNumber},
    {"gamma", FieldType::kNumber},       {"verdict", FieldType::kText},
    {"reason", FieldType::kText}};
constexpr Field kTransition[] = {
    {"failure", FieldType::kText},          {"predicted_s", FieldType::kNumber},
    {"measured_s", FieldType::kNumber},     {"exposed_s", FieldType::kNumber},
    {"verification_s", FieldType::kNumber}, {"settling_s", FieldType::kNumber},
    {"verified", FieldType::kFlag}};
constexpr Field kPrimitive[] = {{"text", FieldType::kText}, {"measured_s", FieldType::kNumber}};
constexpr Field kOther[] = {
    {"file", FieldType::kText}, {"text", FieldType::kText}, {"message", FieldType::kText}};
constexpr Field kForecast[] = {{"step_s", FieldType::kNumber},
                               {"step_s_low", FieldType::kNumber},
                               {"step_s_high", FieldType::kNumber}};

void verify_fields(const Json& j, std::span<const Field> fields, const std::string& where) {
  for (const auto& [key, type] : fields) {
    if (type == FieldType::kNumber) optional(j, key, 0.0, where);
    if (type == FieldType::kWhole) optional(j, key, int64_t{0}, where);
    if (type == FieldType::kText) optional(j, key, std::string(), where);
    if (type == FieldType::kFlag) optional(j, key, false, where);
  }
}

void verify_step(const Json& line, const std::string& where) {
  const int step = optional(line, "step", 0, where);
  if (step < -1 || step > kMostSteps) {
    refuse(where + ": key \"step\": " + std::to_string(step) + " is not between -1 and " +
           std::to_string(kMostSteps));
  }
}

void verify_numbers(const Json& line, const char* key, const std::string& where) {
  const Json values = optional(line, key, Json::object(), where);
  if (!values.is_object()) refuse(where + ": key \"" + key + "\" is no object of numbers");
  for (const auto& [name, value] : values.items()) {
    optional(values, name.c_str(), 0.0, where + ": " + key);
  }
}

void verify_transition(const Json& event, const std::string& where) {
  verify_fields(event, kTransition, where);
  require<int64_t>(event, "moved_bytes", where);
  for (const Json& primitive : require<std::vector<Json>>(event, "primitives", where)) {
    const std::string part = where + ": primitives";
    verify_fields(primitive, kPrimitive, part);
    require<int>(primitive, "id", part);
    require<int64_t>(primitive, "bytes_moved", part);
    require<double>(primitive, "predicted_s", part);
  }
}

// Reads up to the end of a line. False at the end of the file. Of a line that is too long, nothing
// is kept.
bool next_line(std::istream& in, std::string& line, bool& is_too_long) {
  line.clear();
  is_too_long = false;
  std::streambuf& bytes = *in.rdbuf();
  constexpr int kEnd = std::char_traits<char>::eof();
  int byte = bytes.sbumpc();
  if (byte == kEnd) return false;
  for (; byte != kEnd && byte != '\n'; byte = bytes.sbumpc()) {
    if (line.size() == kMostLineBytes) is_too_long = true;
    if (!is_too_long) line += static_cast<char>(byte);
  }
  if (byte == kEnd) in.setstate(std::ios::eofbit);
  return true;
}

// A line as a run writes it. Throws Error(kInvalidInput) naming file, line and key.
Json parsed_line(const std::string& line, RecordKind kind, const std::string& file,
                 int64_t number) {
  const bool is_event = kind == RecordKind::kEvents;
  const std::string place = "line " + std::to_string(number);
  const auto refuse_line = [&](const std::string& why) {
    constexpr size_t kShown = 60;
    refuse(file + ": " + place + " is no " + (is_event ? "event" : "step") +
           " of a run: " + shown(line, kShown) + why);
  };
  Json value;
  try {
    value = parse_json(line, "");
  } catch (const Error& error) {
    refuse_line(error.what());
  }
  if (!value.is_object() || (is_event && text_in(value, "type").empty())) refuse_line("");
  try {
    is_event ? verify_event(value, place) : verify_metrics(value, place);
  } catch (const Error& error) {
    refuse(file + ": " + (is_event ? "an event" : "a step") +
           " is not as a run writes it: " + error.what());
  }
  return value;
}

}  // namespace

void verify_metrics(const Json& line, const std::string& where) {
  if (!line.is_object()) refuse(where + ": expected an object, not " + shown_json(line));
  verify_step(line, where);
  const auto tokens = optional(line, "response_tokens", int64_t{0}, where);
  if (tokens < 0 || tokens > kMostTokens) {
    refuse(where + ": key \"response_tokens\": " + std::to_string(tokens) +
           " is not between 0 and " + std::to_string(kMostTokens));
  }
  for (const auto& [key, value] : line.items()) {
    if (key == "peak_bytes") {
      verify_numbers(line, key.c_str(), where);
    } else {
      optional(line, key.c_str(), 0.0, where);
    }
  }
}

void verify_event(const Json& event, const std::string& where) {
  if (!event.is_object()) refuse(where + ": expected an object, not " + shown_json(event));
  const auto type = require<std::string>(event, "type", where);
  verify_step(event, where);
  if (type == "decision") {
    verify_fields(event, kDecision, where);
    verify_numbers(event, "signals", where);
    optional(event, "best", Plan(), where);
    const Json next = optional(event, "next", Json(), where);
    if (next.is_null()) return;
    for (const Field& field : kForecast) require<double>(next, field.key, where + ": next");
  } else if (type == "transition") {
    verify_transition(event, where);
  } else {
    verify_fields(event, kOther, where);
  }
}

Records read_records(const std::filesystem::path& file, RecordKind kind) {
  Records records;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return records;
  require_regular_file(file);
  std::ifstream in(file, std::ios::binary);
  std::string line;
  bool is_too_long = false;
  for (int64_t number = 1; next_line(in, line, is_too_long); ++number) {
    if (line.empty()) continue;
    try {
      if (is_too_long) {
        refuse(file.string() + ": line " + std::to_string(number) + " is longer than " +
               std::to_string(kMostLineBytes) + " bytes");
      }
      records.lines.push_back(parsed_line(line, kind, file.string(), number));
    } catch (const Error& error) {
      if (!in.eof()) records.problems.emplace_back(error.what());
    }
  }
  return records;
}

double number_in(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : 0.0;
}

std::string text_in(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

bool flag_in(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_boolean() && found->get<bool>();
}

int step_in(const Json& line) {
  const auto found = line.find("step");
  return found != line.end() && found->is_number_integer() ? found->get<int>() : 0;
}

Json value_in(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found == line.end() ? Json() : *found;
}

}  // namespace nereus
