#include "nereus/core/base/text.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <numeric>

namespace nereus {

namespace {

// Levenshtein distance, one row of the table at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// The length in bytes of the UTF-8 character that `text` begins with; 0: it is none that prints.
size_t character_size(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return first < 0x20 || first == 0x7f ? 0 : 1;
  const size_t size = first >= 0xf0 && first < 0xf5 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first >= 0xf5 || size > text.size()) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  return size;
}

}  // namespace

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += separator;
    text += parts[i];
  }
  return text;
}

std::string join(std::span<const int> numbers, std::string_view separator) {
  std::vector<std::string> parts;
  for (int number : numbers) parts.push_back(std::to_string(number));
  return join(parts, separator);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  constexpr size_t kLongestKey = 200;  // the table of distances grows with the word
  if (word.size() > kLongestKey) return "";
  std::string best;
  size_t limit = std::max<size_t>(2, word.size() / 3);
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < limit || (distance == limit && best.empty())) {
      best = candidate;
      limit = distance;
    }
  }
  return best;
}

std::string shown(std::string_view text, size_t most) {
  std::string out(1, '"');
  for (size_t i = 0; i < text.size();) {
    if (i >= most) return out += "…\"";
    const size_t size = character_size(text.substr(i));
    if (size > 0) {
      out += text.substr(i, size);
    } else {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(text[i]);
      out += {'\\', 'x', kDigits[byte >> 4U], kDigits[byte & 0xfU]};
    }
    i += std::max<size_t>(size, 1);
  }
  return out += '"';
}

std::string format_number(double value, const char* format) {
  std::string text(static_cast<size_t>(std::snprintf(nullptr, 0, format, value)), '\0');
  std::snprintf(text.data(), text.size() + 1, format, value);
  return text;
}

}  // namespace nereus
