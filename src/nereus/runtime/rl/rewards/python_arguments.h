// What a reward function in Python is called with.
#pragma once

#include <string>

#include "nereus/runtime/rl/rewards/reward.h"

namespace nereus {

// The keyword arguments of verl's compute_score as the text of a JSON object: data_source,
// solution_str, ground_truth, and extra_info: the row's members over "prompt", "response_tokens"
// and "finished". Values of the row are written as the row has them, so that Python's json.loads
// gives lists, objects, booleans, null and numbers of any length what they are. Characters that a
// response has in part only are replaced.
std::string python_arguments(const RewardInput& input);

}  // namespace nereus
