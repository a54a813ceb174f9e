// What the passes of one unit rank need beside the state, by component. Formulas: COST.md of the
// design notes, Megatron's theoretical_memory_usage.py and what the runtime's own autograd keeps.
#pragma once

#include <string>
#include <vector>

#include "nereus/cost/shape.h"

namespace nereus {

struct NamedBytes {
  std::string component;  // "gradients", "activations", "logits", "kv_cache", "staging"
  Bytes bytes;            // > 0
};

// Uncalibrated. Training covers the inference passes on the same units, which need less. Staging is
// the buffer of one chunk for the weights that generation units receive.
std::vector<NamedBytes> training_transient(const StagePlan& stage, const JobSpec& job, int index);
std::vector<NamedBytes> inference_transient(const StagePlan& stage, const JobSpec& job, int index);
std::vector<NamedBytes> generation_transient(const StagePlan& stage, const JobSpec& job, int index);

// The one of these that the stage calls for.
std::vector<NamedBytes> transient(const StagePlan& stage, const JobSpec& job, int index);

}  // namespace nereus
