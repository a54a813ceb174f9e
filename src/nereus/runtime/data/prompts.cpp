#include "nereus/runtime/data/prompts.h"

#include <map>
#include <sstream>
#include <utility>

#include "nereus/core/base/json_members.h"
#include "nereus/core/base/text.h"
#include "nereus/runtime/files/files.h"

namespace nereus {

namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kInvalidInput, where + ": " + what);
}

std::string start_of(const Json& value) { return value.dump().substr(0, 80); }

// The text of a message's content, which may be a list of parts.
std::string text_of(const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    refuse(where, "key \"content\" has an unusable value " + start_of(content) +
                      "; expected a text or a list of {\"type\": \"text\", \"text\": …}");
  }
  std::vector<std::string> texts;
  for (const Json& part : content) {
    const bool is_text = part.is_object() && part.value("type", Json()) == "text";
    if (!is_text || !part.value("text", Json()).is_string()) {
      refuse(where, "\"content\" has the part " + start_of(part) +
                        "; only {\"type\": \"text\", \"text\": …} can be given to a language " +
                        "model: leave out images, audio and the like, or the row");
    }
    texts.push_back(part["text"].get<std::string>());
  }
  return join(texts, "\n");
}

// What the chat APIs let an assistant do instead of saying something.
bool calls_tools(const Json& message) {
  const auto has = [&](const char* key) {
    return message.contains(key) && !message[key].is_null() && !message[key].empty();
  };
  return message["role"] == "assistant" && (has("tool_calls") || has("function_call"));
}

// The content of the last user message.
std::string last_question(const Json& messages, const std::string& where) {
  std::string question;
  for (const Json& message : messages) {
    if (!message.is_object()) {
      refuse(where, "a message must be {\"role\": …, \"content\": …}, not " + start_of(message));
    }
    const auto role = require<std::string>(message, "role", where);
    if (message.value("content", Json()).is_null() && calls_tools(message)) continue;
    const std::string content = text_of(require<Json>(message, "content", where), where);
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

using Members = std::map<std::string, std::string>;

// What the row has for the chat template besides messages.
constexpr std::pair<const char*, Json::value_t> kForTemplates[] = {
    {"tools", Json::value_t::array}, {"chat_template_kwargs", Json::value_t::object}};

std::string conversation(const Json& row, const Members& members, const std::string& key,
                         const std::string& where) {
  std::string more;
  for (const auto& [name, type] : kForTemplates) {
    const Json value = optional(row, name, Json(), where);
    if (value.empty()) continue;
    if (value.type() != type) {
      refuse(where, std::string(name) + " must be " +
                        (type == Json::value_t::array ? "a list" : "an object") + ", not " +
                        start_of(value));
    }
    more += std::string(",\"") + name + "\":" + members.at(name);
  }
  return more.empty() ? members.at(key) : "{\"messages\":" + members.at(key) + more + "}";
}

// Tokens, a text or messages.
void read_prompt(const Json& row, const Members& members, const std::string& key,
                 const std::string& where, Prompt& prompt) {
  if (const Json ids = optional(row, "prompt_ids", Json(), where); !ids.is_null()) {
    prompt.ids = token_ids(ids, where);
    return;
  }
  const auto value = require<Json>(row, key.c_str(), where);
  if (value.is_array()) {
    prompt.text = last_question(value, where);
    prompt.messages = conversation(row, members, key, where);
  } else if (value.is_string()) {
    prompt.text = value.get<std::string>();
  } else {
    refuse(where, "the prompt must be a string or a list of messages, not " + start_of(value));
  }
}

// As JSON. verl's comes first, as the answer of such a row may be a whole derivation.
std::string ground_truth(Members members) {
  Members verl = json_members(members["reward_model"]);
  const std::string candidates[] = {verl["ground_truth"], members["label"], members["answer"]};
  std::string null;
  for (const std::string& candidate : candidates) {
    if (!candidate.empty() && candidate != "null") return candidate;
    if (!candidate.empty()) null = candidate;
  }
  return null;
}

// For rewards that compare texts.
std::string as_text(const std::string& json) {
  if (json.empty() || json == "null") return "";
  return json.front() == '"' ? Json::parse(json).get<std::string>() : json;
}

Prompt parse_row(const std::string& line, int number, const std::string& prompt_key,
                 const std::string& where) {
  const Json row = parse_json(line, where);
  if (!row.is_object()) refuse(where, "a row must be a JSON object");
  Members members = json_members(line);
  const std::string truth = ground_truth(members);
  Prompt prompt = {.line = number,
                   .ground_truth = as_text(truth),
                   .ground_truth_json = truth,
                   .data_source = optional<std::string>(row, "data_source", "", where)};
  read_prompt(row, members, prompt_key, where, prompt);
  if (prompt.text.empty() && prompt.ids.empty()) refuse(where, "the prompt is empty");
  if (row.value("extra_info", Json()).is_object()) prompt.extra_info = members["extra_info"];
  prompt.row = row.dump();
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
