// Sizes that the memory and the latency formulas share: what one rank of one unit holds and does.
#pragma once

#include <cstdint>
#include <vector>

#include "nereus/core/state/sharding.h"
#include "nereus/core/workflow/job_spec.h"

namespace nereus {

// ceil(whole / parts), parts >= 1.
constexpr int64_t ceil_div(int64_t whole, int64_t parts) { return (whole + parts - 1) / parts; }

// Elements of one part of the state that each rank of a unit holds, in rank order: equals
// state_bytes(), but the blocks of a model are counted once instead of one by one, which a search
// over thousands of layouts needs.
std::vector<int64_t> part_elements(const ModelSpec& spec, Layout layout, StatePart part);
std::vector<int64_t> weight_elements(const ModelSpec& spec, Layout layout);

// Largest share of `groups` that one of `tp` ranks holds: the slowest, fullest rank decides.
int64_t largest_share(int64_t groups, int tp);

// Elements of one token on one of `tp` ranks, the fullest one.
struct TokenWidths {
  double hidden = 0;    // whole on every rank
  double sequence = 0;  // the same, cut along the sequence if the software does that
  double query = 0;
  double key_value = 0;
  double ffn = 0;
};
TokenWidths token_widths(const ModelSpec& spec, int tp, const Execution& execution);

// How one unit (one of dp replicas) cuts its share of `sequences` into micro-batches; the fullest
// unit. `size` is the largest micro-batch.
struct MicroBatches {
  int64_t size = 1;
  int64_t count = 1;
};
MicroBatches micro_batches(int64_t sequences, const StagePlan& stage);

// Matrix-product parameters of one block that a token passes (of its experts only those it is sent
// to), and of the head (vocab × hidden, or hidden for a scalar).
int64_t block_parameters(const ModelSpec& spec);
int64_t head_parameters(const ModelSpec& spec);
// Columns of the FFN that a token passes: the FFN's, or those of its experts together.
int64_t active_ffn(const ModelSpec& spec);
// Of one block's FFN parameters, the share that a batch of `tokens` touches: all, or the experts
// that at least one token is sent to if each chooses evenly, 1 - (1 - chosen / experts)^tokens.
double touched_experts(const ModelSpec& spec, double tokens);

}  // namespace nereus
