#include "nereus/core/cost/pass_times.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace nereus {
namespace {

// Times that operators read or write a tensor of the width named.
constexpr double kNormPasses = 2 * 3;      // of hidden: two norms read twice and write
constexpr double kResidualPasses = 2 * 3;  // of hidden: two additions
constexpr double kActivationPasses = 5;    // of ffn: SiLU, then its product with up
constexpr double kRotaryPasses = 2;        // of query and key
constexpr double kVocabularyPasses = 6;    // of logits, in single precision
constexpr double kSinglePrecision = 4;
// AdamW reads weight, gradient and both moments and writes three of them.
constexpr double kOptimizerPasses = 7;

// The matrix products of a block for `tokens` tokens.
Operations block_products(const UnitView& unit, const TokenWidths& width, double tokens) {
  const double parameters = double(block_parameters(unit.model->spec)) / unit.stage->layout.tp;
  // In and out of the products for q, k and v, o, gate and up, and down.
  const double operands = 4 * width.hidden + 2 * width.query + 2 * width.key_value + 3 * width.ffn;
  return arithmetic(unit, OpClass::kGemm, 2 * parameters * tokens) +
         traffic(unit, OpClass::kOperands, (parameters + operands * tokens) * weight_size(unit));
}

Operations block_elementwise(const UnitView& unit, const TokenWidths& width, double tokens) {
  const double bytes = tokens * weight_size(unit);
  return traffic(unit, OpClass::kNorm, kNormPasses * width.sequence * bytes) +
         traffic(unit, OpClass::kElementwise,
                 (kResidualPasses * width.sequence + kActivationPasses * width.ffn) * bytes) +
         traffic(unit, OpClass::kRotary, kRotaryPasses * (width.query + width.key_value) * bytes);
}

Operations head_pass(const UnitView& unit, double outputs) {
  const ModelSpec& spec = unit.model->spec;
  const int tp = unit.stage->layout.tp;
  const double parameters = double(head_parameters(spec)) / tp;
  const double logits = outputs * parameters / double(spec.hidden_size);
  const double operands = outputs * double(spec.hidden_size) + logits;
  return arithmetic(unit, OpClass::kGemm, 2 * parameters * outputs) +
         traffic(unit, OpClass::kOperands, (parameters + operands) * weight_size(unit)) +
         traffic(unit, OpClass::kElementwise, kVocabularyPasses * logits * kSinglePrecision);
}

// The parts of a forward pass whose results no backward reads: each block's last product (the one
// down from the intermediate width), and the head.
Operations unread(const UnitView& unit, int pp_rank, const Batch& batch) {
  const TokenWidths width =
      token_widths(unit.model->spec, unit.stage->layout.tp, unit.job->execution);
  const double tokens = batch.sequences * batch.length;
  const double weights = width.hidden * width.ffn;
  const double operands = weights + tokens * (width.hidden + width.ffn);
  Operations all = (arithmetic(unit, OpClass::kGemm, 2 * weights * tokens) +
                    traffic(unit, OpClass::kOperands, operands * weight_size(unit))) *
                   blocks_of(unit, pp_rank);
  if (is_last(unit, pp_rank)) all += head_pass(unit, batch.outputs);
  return all;
}

// What one pipeline stage does with one micro-batch.
struct StageWork {
  Operations compute, tensor_comm, pipeline_comm;
};

StageWork micro_batch_work(const UnitView& unit, int pp_rank, double sequences, PassShape shape) {
  const Workload& workload = unit.job->workload;
  const double length = double(workload.prompt_tokens) + workload.response_mean;
  const Batch batch{sequences, length, sequences * workload.response_mean};
  const double hidden_bytes =
      sequences * length * double(unit.model->spec.hidden_size) * weight_size(unit);
  Operations compute = forward_pass(unit, pp_rank, batch) * shape.forwards;
  if (shape.skips_unread) compute += unread(unit, pp_rank, batch) * -1;
  return {
      .compute = compute,
      .tensor_comm = tensor_all_reduce(unit, pp_rank, hidden_bytes) *
                     (double(shape.all_reduces) * blocks_of(unit, pp_rank)),
      .pipeline_comm = to_next_stage(unit, pp_rank, hidden_bytes) * double(shape.sends),
  };
}

// Σ t + (count - 1) · max t over the stages; interleaved, what is not the slowest stage's own work
// shrinks by the number of chunks.
Operations through_pipeline(const std::vector<StageWork>& stages, Operations StageWork::* part,
                            double count, int chunks) {
  Operations total, largest;
  for (const StageWork& stage : stages) {
    total += stage.*part;
    if ((stage.*part).sum() > largest.sum()) largest = stage.*part;
  }
  return largest * count + (total + largest * -1) * (1.0 / chunks);
}

}  // namespace

Operations forward_pass(const UnitView& unit, int pp_rank, const Batch& batch) {
  const ModelSpec& spec = unit.model->spec;
  const TokenWidths width = token_widths(spec, unit.stage->layout.tp, unit.job->execution);
  const double tokens = batch.sequences * batch.length;
  // Causal: half of 4 · length² · heads · head_dim.
  const double attention = 2 * tokens * batch.length * width.query;
  Operations block = block_products(unit, width, tokens);
  block += block_elementwise(unit, width, tokens);
  block += arithmetic(unit, OpClass::kAttention, attention);
  Operations pass = block * blocks_of(unit, pp_rank);
  pass += launches(unit, blocks_of(unit, pp_rank));
  if (is_last(unit, pp_rank)) pass += head_pass(unit, batch.outputs);
  return pass;
}

Work pipeline_work(const UnitView& unit, MicroBatches batches, PassShape shape) {
  std::vector<StageWork> stages;
  for (int pp_rank = 0; pp_rank < unit.stage->layout.pp; ++pp_rank) {
    stages.push_back(micro_batch_work(unit, pp_rank, double(batches.size), shape));
  }
  const auto count = double(batches.count);
  const int chunks = unit.job->execution.pipeline_chunks;
  return {
      {OpClass::kCompute, through_pipeline(stages, &StageWork::compute, count, chunks)},
      {OpClass::kTensorComm, through_pipeline(stages, &StageWork::tensor_comm, count, chunks)},
      {OpClass::kPipelineComm, through_pipeline(stages, &StageWork::pipeline_comm, count, chunks)},
  };
}

Operations optimizer_work(const UnitView& unit) {
  const int64_t fullest = std::ranges::max(unit.elements->optimizer);
  return traffic(unit, OpClass::kOptimizer, kOptimizerPasses * kSinglePrecision * double(fullest));
}

}  // namespace nereus
