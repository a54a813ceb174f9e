#include "nereus/data/prompts.h"

#include <sstream>
#include <utility>

#include "nereus/data/files.h"

namespace nereus {

namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kInvalidInput, where + ": " + what);
}

std::string start_of(const Json& value) { return value.dump().substr(0, 80); }

// The content of the last user message.
std::string last_question(const Json& messages, const std::string& where) {
  std::string question;
  for (const Json& message : messages) {
    if (!message.is_object()) {
      refuse(where, "a message must be {\"role\": …, \"content\": …}, not " + start_of(message));
    }
    const auto role = require<std::string>(message, "role", where);
    const auto content = require<std::string>(message, "content", where);
    if (role == "user") question = content;
  }
  if (question.empty()) refuse(where, "the prompt has no user message, or an empty one");
  return question;
}

std::vector<int64_t> token_ids(const Json& values, const std::string& where) {
  if (!values.is_array()) refuse(where, "prompt_ids must be a list, not " + start_of(values));
  std::vector<int64_t> ids;
  for (const Json& value : values) {
    const bool huge = value.is_number_unsigned() && !std::in_range<int64_t>(value.get<uint64_t>());
    if (!value.is_number_integer() || huge) {
      refuse(where, "prompt_ids[" + std::to_string(ids.size()) + "] is " + start_of(value) +
                        "; a token id is a whole number");
    }
    ids.push_back(value.get<int64_t>());
  }
  return ids;
}

// Tokens, a text or messages.
void read_prompt(const std::string& line, const Json& row, const std::string& key,
                 const std::string& where, Prompt& prompt) {
  if (const Json ids = optional(row, "prompt_ids", Json(), where); !ids.is_null()) {
    prompt.ids = token_ids(ids, where);
    return;
  }
  const auto value = require<Json>(row, key.c_str(), where);
  if (value.is_array()) {
    prompt.text = last_question(value, where);
    prompt.messages = nlohmann::ordered_json::parse(line).at(key).dump();
  } else if (value.is_string()) {
    prompt.text = value.get<std::string>();
  } else {
    refuse(where, "the prompt must be a string or a list of messages, not " + start_of(value));
  }
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

Prompt parse_row(const std::string& line, int number, const std::string& prompt_key,
                 const std::string& where) {
  Json row = parse_json(line, where);
  if (!row.is_object()) refuse(where, "a row must be a JSON object");
  Prompt prompt = {.line = number,
                   .ground_truth = ground_truth(row),
                   .data_source = optional<std::string>(row, "data_source", "", where)};
  read_prompt(line, row, prompt_key, where, prompt);
  if (prompt.text.empty() && prompt.ids.empty()) refuse(where, "the prompt is empty");
  prompt.extra = std::move(row);
  return prompt;
}

}  // namespace

std::string prompt_place(const std::filesystem::path& file, int line) {
  return file.string() + " row " + std::to_string(line);
}

std::vector<Prompt> read_prompts(const std::filesystem::path& file, const std::string& prompt_key) {
  std::istringstream lines(read_text(file, kMostPromptBytes));
  std::vector<Prompt> prompts;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    prompts.push_back(parse_row(line, number, prompt_key, prompt_place(file, number)));
  }
  if (prompts.empty()) refuse(file.string(), "has no rows; expected one JSON object per line");
  return prompts;
}

}  // namespace nereus
