#include "nereus/runtime/rl/rewards/python_arguments.h"

namespace nereus {

namespace {

std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// `object` with the members of `more`, an object as JSON or nothing: of two values, json.loads
// takes the last.
std::string extended(const Json& object, const std::string& more) {
  std::string text = dump(object);
  if (more.find('"') == std::string::npos) return text;  // it has no members
  text.back() = ',';
  return text + more.substr(more.find('{') + 1);
}

}  // namespace

std::string python_arguments(const RewardInput& input) {
  const std::string truth =
      input.ground_truth_json.empty() ? dump(input.ground_truth) : input.ground_truth_json;
  const Json own = {{"prompt", input.prompt},
                    {"response_tokens", input.response_tokens},
                    {"finished", input.finished}};
  return "{\"data_source\":" + dump(input.data_source) +
         ",\"solution_str\":" + dump(input.response) + ",\"ground_truth\":" + truth +
         ",\"extra_info\":" + extended(own, input.extra_info) + "}";
}

}  // namespace nereus
