#include "nereus/runtime/rl/rewards/reward.h"

#include <algorithm>

#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"
#include "nereus/runtime/rl/rewards/digit_completion.h"
#include "nereus/runtime/rl/rewards/last_number.h"
#include "nereus/runtime/rl/rewards/response_length.h"
#include "nereus/runtime/rl/rewards/vader_sentiment.h"

namespace nereus {

namespace {

void verify_keys(const std::string& name, const Json& options,
                 const std::vector<std::string>& known) {
  if (options.is_null()) return;
  for (const auto& [key, value] : options.items()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const std::string close = nearest(key, known);
    throw Error(ErrorCode::kInvalidInput,
                "reward " + name + ": unknown option \"" + key + "\"" +
                    (close.empty() ? "" : ", did you mean \"" + close + "\"?") +
                    (known.empty() ? "; it has none" : "; it has " + join(known, ", ")));
  }
}

}  // namespace

std::unique_ptr<RewardCalls> Reward::begin() const {
  throw Error(ErrorCode::kInternal, "this reward is fast: score_all() is enough");
}

std::vector<RewardResult> Reward::score_all(const std::vector<RewardInput>& inputs,
                                            const StopToken& stop) const {
  std::vector<RewardResult> results;
  for (const RewardInput& input : inputs) {
    stop.check();
    try {
      results.push_back({score(input), RewardFailure::kNone, ""});
    } catch (const std::exception& error) {
      results.push_back({{}, RewardFailure::kRaised, error.what()});
    }
  }
  return results;
}

std::unique_ptr<Reward> make_reward(const std::string& name, const Json& options) {
  if (name == "vader_sentiment") {
    verify_keys(name, options, {"lexicon", "sign"});
    const std::string where = "reward " + name;
    return std::make_unique<VaderSentiment>(require<std::string>(options, "lexicon", where),
                                            optional(options, "sign", 1, where));
  }
  if (name == "digit_completion") {
    verify_keys(name, options, {});
    return std::make_unique<DigitCompletion>();
  }
  if (name == "last_number") {
    verify_keys(name, options, {});
    return std::make_unique<LastNumber>();
  }
  if (name == "response_length") {
    verify_keys(name, options, {"sign"});
    return std::make_unique<ResponseLength>(optional(options, "sign", 1, "reward " + name));
  }
  throw Error(ErrorCode::kInvalidInput, "unknown reward \"" + name +
                                            "\"; use vader_sentiment, digit_completion, " +
                                            "last_number or response_length");
}

}  // namespace nereus
