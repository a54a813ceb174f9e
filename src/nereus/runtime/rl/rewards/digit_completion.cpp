#include "nereus/runtime/rl/rewards/digit_completion.h"

#include <regex>

#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"

namespace nereus {

std::string digit_answer(const std::string& prompt) {
  static const std::regex kForm(R"((\d{1,9}),(\d{1,9}):(\d{1,9}),(\d{1,4}))");
  std::smatch match;
  const bool well_formed = std::regex_match(prompt, match, kForm);
  const int64_t maximum = well_formed ? std::stoll(match[3]) : 0;
  if (maximum < 1) {
    throw Error(ErrorCode::kInvalidInput,
                "digit_completion: the prompt must be \"a,b:max,n\" with "
                "max at least 1, not \"" +
                    prompt + "\"");
  }
  const int64_t first = std::stoll(match[1]);
  int64_t term = std::stoll(match[2]);
  const int64_t difference = ((term - first) % maximum + maximum) % maximum;
  std::vector<std::string> terms;
  for (int64_t left = std::stoll(match[4]); left > 0; --left) {
    term = (term + difference) % maximum;
    terms.push_back(std::to_string(term));
  }
  return join(terms, ",");
}

RewardOutput DigitCompletion::score(const RewardInput& input) const {
  const std::string answer = digit_answer(input.prompt);
  const std::string& response = input.response;
  const auto tokens = static_cast<size_t>(input.response_tokens);
  if (response.size() > tokens) {
    throw Error(
        ErrorCode::kInvalidInput,
        "digit_completion needs a tokenizer with one character per token: the response has " +
            std::to_string(response.size()) + " characters in " + std::to_string(tokens) +
            " tokens");
  }
  const double share = 1.0 / static_cast<double>(answer.size() + 1);
  RewardOutput output;
  output.token_scores.assign(tokens, 0.0);
  size_t matched = 0;
  while (matched < std::min(answer.size(), response.size()) &&
         response[matched] == answer[matched]) {
    output.token_scores[matched++] = share;
  }
  const double at_end =
      response.empty() ? (answer.empty() ? 1.0 : 0.0) : output.token_scores[response.size() - 1];
  for (size_t t = response.size(); t < tokens; ++t) output.token_scores[t] = at_end;
  return output;
}

}  // namespace nereus
