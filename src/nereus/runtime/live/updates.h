// The optimizer steps of a step, over the units of a runtime.
#pragma once

#include "nereus/runtime/live/executor.h"
#include "nereus/runtime/live/options.h"
#include "nereus/runtime/live/runtime.h"
#include "nereus/runtime/rl/sample.h"

namespace nereus {

// One optimizer step of the role's model (actor or critic) per mini-batch and epoch: metrics are
// means over the mini-batches, grad_norm and lr among them. Samples that were not scored weigh
// nothing in losses, their means and metrics; a mini-batch without a token of a scored sample is
// left out, and without any mini-batch the result is idle. Throws Error(kNumeric) before a
// mini-batch has changed anything. All of them, or, if `stop` comes before the first has changed
// anything, none: Stopped.
//
// `fills_old_log_probs`: each mini-batch is seen once, by weights that no mini-batch has changed,
// so that the log-probabilities of its own forward pass are the old ones. They are used and stored
// as such.
PassResult update_model(Runtime& runtime, Role role, Experience& experience, int step,
                        const LiveOptions& options, bool fills_old_log_probs, StopToken stop);

}  // namespace nereus
