#include "nereus/rl/rewards/python_reward.h"

#include <cmath>

#include "nereus/base/error.h"

namespace nereus {

namespace {

double number(const std::string& function, const Json& value, const std::string& what) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  if (std::isfinite(number)) return number;
  throw Error(ErrorCode::kInvalidInput,
              function + ": " + what + " is " +
                  (value.is_number() ? std::to_string(number) : value.dump()) +
                  ", not a finite number");
}

}  // namespace

PythonReward::PythonReward(const std::filesystem::path& file, const std::string& function) try
    : function_(file, function) {
} catch (const Error& error) {
  throw Error(error.code(), std::string(error.what()) +
                                " (custom_reward_function.path, custom_reward_function.name)");
}

RewardOutput PythonReward::score(const RewardInput& input) const {
  Json extra_info = {{"prompt", input.prompt},
                     {"response_tokens", input.response_tokens},
                     {"finished", input.finished}};
  if (input.extra_info.is_object()) extra_info.update(input.extra_info);
  const Json answer = function_.call({{"data_source", input.data_source},
                                      {"solution_str", input.response},
                                      {"ground_truth", input.ground_truth},
                                      {"extra_info", extra_info}});
  RewardOutput output;
  if (!answer.is_object()) {
    output.score = number(function_.name(), answer, "its answer");
    return output;
  }
  output.score = number(function_.name(), answer.value("score", Json()), "\"score\"");
  for (const auto& [key, value] : answer.items()) {
    if (key == "score" || !(value.is_number() || value.is_boolean())) continue;
    output.extra[key] = number(function_.name(), value, key);
  }
  return output;
}

}  // namespace nereus
