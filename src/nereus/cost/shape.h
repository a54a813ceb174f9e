// Sizes that the memory and the latency formulas share: what one rank of one unit holds and does.
#pragma once

#include <cstdint>
#include <vector>

#include "nereus/state/sharding.h"
#include "nereus/workflow/job_spec.h"

namespace nereus {

// ceil(whole / parts), parts >= 1.
constexpr int64_t ceil_div(int64_t whole, int64_t parts) { return (whole + parts - 1) / parts; }

// Weight elements of each rank of a unit, in rank order: equals state_bytes(), but the blocks of a
// model are counted once instead of one by one, which a search over thousands of layouts needs.
std::vector<int64_t> weight_elements(const ModelSpec& spec, Layout layout);

// Largest share of `groups` that one of `tp` ranks holds: the slowest, fullest rank decides.
int64_t largest_share(int64_t groups, int tp);

// How one unit (one of dp replicas) cuts its share of `sequences` into micro-batches; the fullest
// unit. `size` is the largest micro-batch.
struct MicroBatches {
  int64_t size = 1;
  int64_t count = 1;
};
MicroBatches micro_batches(int64_t sequences, const StagePlan& stage);

// Matrix-product parameters of one block, and of the head (vocab × hidden, or hidden for a scalar).
int64_t block_parameters(const ModelSpec& spec);
int64_t head_parameters(const ModelSpec& spec);

}  // namespace nereus
