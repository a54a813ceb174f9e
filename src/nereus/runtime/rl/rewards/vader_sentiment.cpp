#include "nereus/runtime/rl/rewards/vader_sentiment.h"

#include <cctype>
#include <cmath>
#include <sstream>

#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"
#include "nereus/runtime/files/files.h"

namespace nereus {

namespace {

constexpr double kAlpha = 15;  // VADER's normalisation constant

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidInput, message);
}

bool is_punctuation(char c) { return std::ispunct(static_cast<unsigned char>(c)) != 0; }

// Lower case, without punctuation at either end ("Don't!" → "don't").
std::string normalise(std::string word) {
  while (!word.empty() && is_punctuation(word.back())) word.pop_back();
  size_t begin = 0;
  while (begin < word.size() && is_punctuation(word[begin])) ++begin;
  word.erase(0, begin);
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word;
}

}  // namespace

VaderSentiment::VaderSentiment(const std::filesystem::path& lexicon, int sign) : sign_(sign) {
  if (sign != 1 && sign != -1) {
    refuse("vader_sentiment: sign is " + std::to_string(sign) + "; it must be 1 or -1");
  }
  std::istringstream stream(read_text(lexicon));
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    if (line.empty()) continue;
    const size_t tab = line.find('\t');
    double valence = 0;
    if (tab == std::string::npos || !(std::istringstream(line.substr(tab + 1)) >> valence)) {
      refuse(lexicon.string() + " line " + std::to_string(number) +
             ": expected token, tab, valence; found " + shown(line));
    }
    valence_[line.substr(0, tab)] = valence;
  }
  if (valence_.empty()) refuse(lexicon.string() + ": the lexicon is empty");
}

RewardOutput VaderSentiment::score(const RewardInput& input) const {
  std::istringstream words(input.response);
  double sum = 0;
  for (std::string word; words >> word;) {
    if (const auto entry = valence_.find(normalise(std::move(word))); entry != valence_.end()) {
      sum += entry->second;
    }
  }
  return {.score = sign_ * sum / std::sqrt(sum * sum + kAlpha)};
}

}  // namespace nereus
