#include "nereus/runtime/bridge/python_sources.h"

#include "workers/custom_reward_source.h"

namespace nereus {

std::string custom_reward_source() { return kCustomRewardSource; }

}  // namespace nereus
