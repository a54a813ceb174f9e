// Small text helpers for messages that people read.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nereus {

std::string join(std::span<const std::string> parts, std::string_view separator);
// "1, 2, 4"
std::string join(std::span<const int> numbers, std::string_view separator);
std::vector<std::string> split(std::string_view text, char separator);

// The candidate with the smallest edit distance to `word`, or "" if none is within a third of its
// length (at least 2), or the word is longer than any key: for "unknown key X, did you mean Y?".
std::string nearest(std::string_view word, std::span<const std::string> candidates);

// `text` in quotes as a message shows it: at most `most` bytes of it, then "…"; control characters
// and bytes that are no UTF-8 as \xNN, so that no input can garble a terminal or a log.
std::string shown(std::string_view text, size_t most = 80);

// printf-style number formatting without fmt (whose versions clash with torch's): "%.3g" etc.
std::string format_number(double value, const char* format = "%.4g");

}  // namespace nereus
