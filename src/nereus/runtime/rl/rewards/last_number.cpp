#include "nereus/runtime/rl/rewards/last_number.h"

#include <optional>
#include <regex>

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

std::optional<double> last_number(std::string text) {
  static const std::regex kThousands(R"((\d),(?=\d{3}))");
  static const std::regex kNumber(R"(-?\d{1,15}(\.\d{1,15})?)");
  text = std::regex_replace(text, kThousands, "$1");
  std::optional<double> last;
  for (std::sregex_iterator match(text.begin(), text.end(), kNumber), end; match != end; ++match) {
    last = std::stod(match->str());
  }
  return last;
}

}  // namespace

RewardOutput LastNumber::score(const RewardInput& input) const {
  const std::optional<double> expected = last_number(input.ground_truth);
  if (input.ground_truth.empty()) {
    throw Error(
        ErrorCode::kInvalidInput,
        "last_number: the prompt has no ground truth; give its row \"answer\", \"label\" or "
        "\"reward_model\": {\"ground_truth\": …}");
  }
  if (!expected) {
    throw Error(ErrorCode::kInvalidInput,
                "last_number: the ground truth \"" + input.ground_truth + "\" is no number");
  }
  return {.score = last_number(input.response) == expected ? 1.0 : 0.0};
}

}  // namespace nereus
