#include "mutate.h"

#include <algorithm>
#include <cctype>
#include <random>
#include <utility>

namespace nereus::fuzz {

namespace {

constexpr const char* kExtremes[] = {"1e400",
                                     "-1e400",
                                     "1e30",
                                     "-1",
                                     "0",
                                     "-0.0",
                                     "4.9",
                                     "1e-320",
                                     "2147483648",
                                     "-2147483649",
                                     "9223372036854775807",
                                     "9223372036854775808",
                                     "18446744073709551615",
                                     "18446744073709551616",
                                     "1000000000",
                                     "99999999999999999999999999",
                                     ".nan",
                                     ".inf",
                                     "NaN",
                                     "Infinity",
                                     "0x7fffffff",
                                     "1_000",
                                     "007"};
constexpr const char* kValues[] = {
    "null",          "true",       "[]", "{}", "\"\"",    "\"x\"",       "[1,2,3]",
    "[[0,1],[0,2]]", "{\"a\":1}",  "~",  "*x", "&x [*x]", "\"\\u0000\"", "\"../../../etc/passwd\"",
    "\"/dev/zero\"", "!!binary x", "'",  "|"};
const std::string kBytes[] = {"\xff",
                              "\xc3",
                              std::string(1, '\0'),
                              "\xef\xbb\xbf",
                              "\xed\xa0\x80",
                              "\r",
                              "\n",
                              "\"",
                              "\\",
                              "\x1b[2J",
                              "---",
                              "\xff\xfe",
                              ",",
                              ":",
                              "\t"};

class Mutator {
 public:
  Mutator(const std::vector<std::string>& seeds, uint64_t seed)
      : seeds_(seeds), random_(seed), text_(any_seed()) {}

  std::string run() {
    const size_t count = 1 + below(3);
    for (size_t i = 0; i < count; ++i) mutate();
    return std::move(text_);
  }

 private:
  size_t below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  const std::string& any_seed() { return seeds_[below(seeds_.size())]; }
  template <size_t N, class T>
  const T& any(const T (&choices)[N]) {
    return choices[below(N)];
  }

  // A random range, most often a short one.
  std::pair<size_t, size_t> range(const std::string& text) {
    const size_t begin = below(text.size() + 1);
    const size_t longest = below(4) == 0 ? text.size() : 16;
    return {begin, std::min(1 + below(longest), text.size() - begin)};
  }

  // The range of a number, word or quoted text at or behind a random place.
  std::pair<size_t, size_t> token() {
    const auto is_word = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
    };
    size_t begin = below(text_.size());
    while (begin > 0 && is_word(text_[begin]) && is_word(text_[begin - 1])) --begin;
    while (begin < text_.size() && !is_word(text_[begin])) ++begin;
    size_t end = begin;
    while (end < text_.size() && is_word(text_[end])) ++end;
    if (begin > 0 && end < text_.size() && text_[begin - 1] == '"' && text_[end] == '"') {
      return {begin - 1, end - begin + 2};
    }
    return {begin, end - begin};
  }

  std::string nested() {
    constexpr size_t kDepths[] = {20, 101, 600, 60'000};
    const size_t depth = any(kDepths);
    const std::pair<const char*, const char*> kinds[] = {{"[", "]"}, {"{\"a\":", "}"}, {"[", ""},
                                                         {"- ", ""}, {"{a: ", "}"},    {"? ", ""}};
    const auto& [open, close] = any(kinds);
    std::string text;
    for (size_t i = 0; i < depth; ++i) text += open;
    text += '1';
    for (size_t i = 0; i < depth; ++i) text += close;
    return text;
  }

  void replace_token(const std::string& by) {
    const auto [begin, size] = token();
    text_.replace(begin, size, by);
  }

  void flip_bit() {
    if (text_.empty()) return;
    char& byte = text_[below(text_.size())];
    byte = static_cast<char>(byte ^ (1 << below(8)));
  }

  void mutate() {
    const auto [begin, size] = range(text_);
    switch (below(14)) {
      case 0:
      case 1:
        return flip_bit();
      case 2:
        text_.erase(begin, size);
        return;
      case 3:
        text_.insert(below(text_.size() + 1), text_.substr(begin, size));
        return;
      case 4: {
        const std::string& other = any_seed();
        const auto [from, length] = range(other);
        text_.replace(begin, size, other.substr(from, length));
        return;
      }
      case 5:
      case 6:
      case 7:
        return replace_token(any(kExtremes));
      case 8:
      case 9:
        return replace_token(any(kValues));
      case 10:
        return replace_token(nested());
      case 11:
        text_.insert(begin, any(kBytes));
        return;
      case 12:
        text_.resize(begin);
        return;
      default: {  // a line or a key again
        const auto [key, length] = token();
        text_.insert(key, text_.substr(key, length) + (below(2) == 0 ? ": 1, " : "\": 1, \""));
        return;
      }
    }
  }

  const std::vector<std::string>& seeds_;
  std::mt19937_64 random_;
  std::string text_;
};

}  // namespace

std::string mutated(const std::vector<std::string>& seeds, uint64_t seed) {
  return Mutator(seeds, seed).run();
}

}  // namespace nereus::fuzz
