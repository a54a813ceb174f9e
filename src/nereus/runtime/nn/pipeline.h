// Running micro-batches through the stages of one unit: forward only, or 1F1B with backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "nereus/core/base/stop_token.h"
#include "nereus/runtime/nn/decoder.h"

namespace nereus {

// Whole sequences behind each other, on the stage's device.
struct MicroBatch {
  at::Tensor tokens;    // [n] int64
  Packing packing;      // of those n tokens
  at::Tensor predicts;  // [m] int64: tokens whose output predicts a response token
  at::Tensor targets;   // [m] int64: those response tokens
};

// Per response token, in the order of MicroBatch::predicts.
struct TokenOutputs {
  at::Tensor log_probs;  // [m], language models
  at::Tensor entropy;    // [m], language models if asked for
  at::Tensor values;     // [m], scalar heads
};

struct PassOptions {
  double temperature = 1;  // logits are divided by it (language models)
  bool with_entropy = false;
  bool recompute = false;  // keep only each block's input, run it again in backward
  StopToken stop;          // looked at before each forward and backward of a micro-batch
};

// Scalar loss of one micro-batch, on every rank of the last stage (same value on all TP ranks).
using LossFunction = std::function<at::Tensor(const TokenOutputs& outputs, int micro_batch)>;

// Outputs per micro-batch on the last stage (detached, any rank of it), empty on other stages. No
// autograd. All ranks of the unit call it with equal arguments. `pp` connects the stages. Throws
// Stopped on any rank, between any two micro-batches, after options.stop: the caller aborts
// the others.
std::vector<TokenOutputs> run_forward(const DecoderStage& stage, Communicator& pp,
                                      const std::vector<MicroBatch>& micro_batches,
                                      const PassOptions& options);

// One-forward-one-backward schedule (PipeDream-flush): stage s keeps at most pp - s micro-batches
// alive. Gradients accumulate into the parameters' .grad; the caller zeroes and synchronises them.
// Throws Stopped as run_forward() does; not after its last backward.
void run_1f1b(const DecoderStage& stage, Communicator& pp,
              const std::vector<MicroBatch>& micro_batches, const PassOptions& options,
              const LossFunction& loss);

}  // namespace nereus
