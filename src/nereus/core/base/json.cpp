#include "nereus/core/base/json.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "nereus/core/base/text.h"

namespace nereus {

namespace {

// "line 2, column 8" of the byte at `position`.
std::string place(const std::string& text, size_t position) {
  const std::string_view before = std::string_view(text).substr(0, position);
  const auto line = 1 + std::ranges::count(before, '\n');
  const size_t column = position - (before.rfind('\n') + 1) + 1;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

// Where brackets lie too deep in each other, if they do. A glance at the text is enough, and takes
// no stack: the parser would build the value first, which then could not even be destroyed.
std::optional<size_t> too_deep(const std::string& text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMostJsonNesting) return i;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::nullopt;
}

// Follows the parser to where it stops, keeping nothing but the place and the reason.
class Follower final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(size_t /*elements*/) override { return true; }
  bool key(string_t& name) override {
    key_ = name;
    return true;
  }
  bool end_object() override { return true; }
  bool start_array(size_t /*elements*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string& token,
                   const Json::exception& error) override {
    // `position` counts from 1 and points just behind what the parser could not use.
    position_ = position;
    token_ = token;
    is_range_ = dynamic_cast<const Json::out_of_range*>(&error) != nullptr;
    const std::string_view reason = error.what();
    constexpr std::string_view kBefore = "syntax error ";
    const size_t start = reason.find(kBefore);
    if (start == std::string_view::npos) return false;
    reason_ = reason.substr(start + kBefore.size());
    // What was read last is told by the token, which may be long or no text.
    if (const size_t last = reason_.find("; last read: "); last != std::string::npos) {
      reason_.erase(last);
    }
    return false;
  }

  size_t position() const { return position_; }
  std::string message() const {
    const std::string at = token_.empty() ? "" : " (at " + shown(token_, 40) + ")";
    if (is_range_) {
      return "number out of range" + at + (key_.empty() ? "" : ", last key " + shown(key_)) +
             "; at most 1.8e308";
    }
    return (reason_.empty() ? "unexpected text" : reason_) + at;
  }

 private:
  size_t position_ = 1;
  std::string key_;
  std::string token_;
  std::string reason_;
  bool is_range_ = false;
};

}  // namespace

namespace detail {

void refuse_value(const std::string& expected, const Json& j) {
  throw Error(ErrorCode::kInvalidInput, "expected " + expected + ", not " + shown_json(j));
}

}  // namespace detail

std::string to_line(const Json& j) {
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string shown_json(const Json& j) {
  constexpr size_t kShown = 80;
  if (j.is_string()) return shown(j.get_ref<const std::string&>(), kShown);
  if (!j.is_structured()) return to_line(j);
  // Printing all of a large value for its beginning would take its time and memory again.
  if (j.size() > kShown) {
    return (j.is_array() ? "a list of " : "an object of ") + std::to_string(j.size()) +
           (j.is_array() ? " items" : " keys");
  }
  std::string text = to_line(j);
  if (text.size() <= kShown) return text;
  const std::string cut = shown(text, kShown);
  return cut.substr(1, cut.size() - 2);
}

void refuse_unknown_keys(const Json& j, const std::vector<std::string>& known,
                         const std::string& where) {
  if (!j.is_object()) {
    throw Error(ErrorCode::kInvalidInput, where + ": expected an object, not " + shown_json(j));
  }
  for (const auto& item : j.items()) {
    if (std::ranges::find(known, item.key()) != known.end()) continue;
    const std::string meant = nearest(item.key(), known);
    throw Error(ErrorCode::kInvalidInput,
                where + ": unknown key " + shown(item.key()) +
                    (meant.empty() ? "; known: " + join(known, ", ")
                                   : "; did you mean \"" + meant + "\"?"));
  }
}

Json parse_json(const std::string& text, const std::string& where) {
  if (const std::optional<size_t> deep = too_deep(text)) {
    throw Error(ErrorCode::kInvalidInput,
                where + ": nested deeper than " + std::to_string(kMostJsonNesting) + " levels at " +
                    place(text, *deep) + "; no value that is used lies so deep");
  }
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_discarded()) return value;
  Follower follower;
  Json::sax_parse(text, &follower);
  const size_t position = std::clamp<size_t>(follower.position(), 1, text.size() + 1) - 1;
  throw Error(ErrorCode::kInvalidInput,
              where + ": not valid JSON at " + place(text, position) + ": " + follower.message());
}

}  // namespace nereus
