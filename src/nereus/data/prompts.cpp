#include "nereus/data/prompts.h"

#include <sstream>
#include <utility>

#include "nereus/data/files.h"

namespace nereus {

namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kInvalidInput, where + ": " + what);
}

// A string, or the content of the only message.
std::string prompt_text(const Json& value, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array() || value.size() != 1 ||
      optional<std::string>(value[0], "role", "", where) != "user") {
    refuse(where, "the prompt must be a string or a list with one user message, not " +
                      value.dump().substr(0, 80));
  }
  return require<std::string>(value[0], "content", where);
}

// Answers may be numbers in the file; reward functions get text.
std::string as_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string ground_truth(const Json& row) {
  for (const char* key : {"label", "answer"}) {
    if (row.contains(key) && !row[key].is_null()) return as_text(row[key]);
  }
  const Json::json_pointer verl("/reward_model/ground_truth");
  return row.contains(verl) ? as_text(row.at(verl)) : "";
}

Prompt parse_row(Json row, const std::string& prompt_key, const std::string& where) {
  if (!row.is_object()) refuse(where, "a row must be a JSON object");
  Prompt prompt = {.ids = optional<std::vector<int64_t>>(row, "prompt_ids", {}, where),
                   .ground_truth = ground_truth(row),
                   .data_source = optional<std::string>(row, "data_source", "", where)};
  if (!row.contains("prompt_ids")) {
    prompt.text = prompt_text(require<Json>(row, prompt_key.c_str(), where), where);
  }
  if (prompt.text.empty() && prompt.ids.empty()) refuse(where, "the prompt is empty");
  prompt.extra = std::move(row);
  return prompt;
}

}  // namespace

std::vector<Prompt> read_prompts(const std::filesystem::path& file, const std::string& prompt_key) {
  std::istringstream lines(read_text(file));
  std::vector<Prompt> prompts;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = file.string() + " row " + std::to_string(number);
    prompts.push_back(parse_row(parse_json(line, where), prompt_key, where));
  }
  if (prompts.empty()) refuse(file.string(), "has no rows; expected one JSON object per line");
  return prompts;
}

}  // namespace nereus
