// What a reward in Python may take.
#pragma once

#include "nereus/core/base/units.h"

namespace nereus {

struct RewardLimits {
  int workers = 0;  // processes; 0: default_workers()
  Seconds timeout;  // of a call, more than 0; loading the file may take ten times as long
  Bytes memory;     // of a process with all that it starts; 0: no limit
};

}  // namespace nereus
