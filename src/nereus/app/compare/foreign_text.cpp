#include "nereus/app/compare/foreign_text.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "nereus/app/config/yaml_text.h"

namespace nereus {

namespace {

std::string scalar_text(const YAML::Node& node) {
  if (node.IsNull()) return "null";
  return node.IsScalar() ? node.Scalar() : YAML::Dump(node);
}

void flatten(const YAML::Node& map, const std::string& prefix, ForeignKeys& keys) {
  for (const auto& item : map) {
    const std::string key = prefix + item.first.Scalar();
    if (item.second.IsMap() && item.second.size() > 0) {
      flatten(item.second, key + ".", keys);
    } else {
      keys[key] = scalar_text(item.second);
    }
  }
}

// Nothing if the text is no YAML mapping.
std::optional<ForeignKeys> read_yaml(const std::string& text) {
  if (text.size() > kMostYamlBytes) return std::nullopt;
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception&) {
    return std::nullopt;
  }
  if (!root.IsMap()) return std::nullopt;
  verify_yaml(root, "--compare");
  ForeignKeys keys;
  flatten(root, "", keys);
  return keys;
}

bool is_flag(const std::string& word) { return word.size() > 2 && word.starts_with("--"); }

ForeignKeys read_words(const std::vector<std::string>& words) {
  ForeignKeys keys;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string word =
        words[i].substr(std::min(words[i].find_first_not_of("+~"), words[i].size()));
    const size_t equals = word.find('=');
    if (equals != std::string::npos && equals > 0) {
      keys[word.substr(0, equals)] = word.substr(equals + 1);
    } else if (is_flag(word)) {
      const bool alone = i + 1 == words.size() || is_flag(words[i + 1]);
      keys[word] = alone ? "true" : words[++i];
    }
  }
  return keys;
}

}  // namespace

std::vector<std::string> shell_words(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  char quote = 0;
  const auto finish = [&] {
    if (!word.empty()) words.push_back(word);
    word.clear();
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '\\') {
      ++i;
      if (i < text.size() && text[i] != '\n') word += text[i];
    } else if (c == '#' && word.empty()) {
      while (i + 1 < text.size() && text[i + 1] != '\n') ++i;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      finish();
    } else {
      word += c;
    }
  }
  finish();
  return words;
}

ForeignKeys read_foreign_keys(const std::string& text) {
  if (const auto yaml = read_yaml(text)) return *yaml;
  return read_words(shell_words(text));
}

}  // namespace nereus
