// What the passes of one unit rank need beside the state, by component. Formulas: COST.md of the
// design notes, Megatron's theoretical_memory_usage.py and what the runtime's own autograd keeps.
#pragma once

#include <string>
#include <vector>

#include "nereus/core/cost/shape.h"

namespace nereus {

struct NamedBytes {
  std::string component;  // "gradients", "activations", "logits", "kv_cache", "staging"
  Bytes bytes;            // > 0
};

// Of the rank at `index` of a unit, which holds so many elements of `weights`. Uncalibrated.
// A training unit's need is the larger one of its training and its inference passes. Staging is the
// buffer of one chunk for the weights that generation units receive.
std::vector<NamedBytes> transient(const StagePlan& stage, const JobSpec& job, int index,
                                  int64_t weights);

}  // namespace nereus
