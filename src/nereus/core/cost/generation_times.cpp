#include "nereus/core/cost/generation_times.h"

#include <cmath>

#include "nereus/core/workflow/response_lengths.h"

namespace nereus {
namespace {

// Sums over the decode steps of a batch, of what a step's time is linear in.
struct DecodeTotals {
  double steps = 0;
  double tokens = 0;        // sequences of each step
  double cached = 0;        // tokens in the cache of each step
  double experts_read = 0;  // share of the FFN's weights that each step touches
};

DecodeTotals decode_totals(const UnitView& unit, double sequences) {
  DecodeTotals totals;
  const auto prompt = double(unit.job->workload.prompt_tokens);
  for (const DecodePhase& phase : decode_phases(unit.job->workload, sequences)) {
    totals.steps += phase.steps;
    totals.tokens += phase.steps * phase.sequences;
    totals.cached += phase.steps * phase.sequences * (prompt + phase.length);
    totals.experts_read += phase.steps * touched_experts(unit.model->spec, phase.sequences);
  }
  return totals;
}

// Weights that all decode steps together read on one rank, elements.
double weights_read(const UnitView& unit, int pp_rank, const DecodeTotals& totals) {
  const ModelSpec& spec = unit.model->spec;
  const auto hidden = double(spec.hidden_size);
  const double ffn = spec.num_experts == 0
                         ? double(spec.intermediate_size)
                         : double(spec.num_experts) * double(spec.moe_intermediate_size);
  const double rest = double(block_parameters(spec)) - 3 * hidden * double(active_ffn(spec));
  double read =
      blocks_of(unit, pp_rank) * (rest * totals.steps + 3 * hidden * ffn * totals.experts_read);
  if (is_last(unit, pp_rank)) read += double(head_parameters(spec)) * totals.steps;
  return read / unit.stage->layout.tp;
}

// All decode steps on one rank of a pipeline stage.
Operations decode_compute(const UnitView& unit, int pp_rank, const DecodeTotals& totals) {
  const double size = weight_size(unit);
  const int blocks = blocks_of(unit, pp_rank);
  const TokenWidths width =
      token_widths(unit.model->spec, unit.stage->layout.tp, unit.job->execution);
  // A pass over all tokens, but weights are read and operators launched once a step.
  Operations work = forward_pass(unit, pp_rank, {totals.tokens, 1, totals.tokens});
  work[OpClass::kLaunch] = 0;
  work[OpClass::kOperands] = 0;
  work += replayed_launches(unit, blocks * totals.steps);
  work += traffic(unit, OpClass::kOperands, weights_read(unit, pp_rank, totals) * size);
  work += traffic(unit, OpClass::kCache, totals.cached * 2 * blocks * width.key_value * size);
  return work;
}

Operations decode_collectives(const UnitView& unit, int pp_rank, const DecodeTotals& totals) {
  const ModelSpec& spec = unit.model->spec;
  const double size = weight_size(unit);
  const double mean = totals.tokens / totals.steps;  // collectives are linear in the batch
  Operations step = tensor_all_reduce(unit, pp_rank, mean * double(spec.hidden_size) * size) *
                    (2.0 * blocks_of(unit, pp_rank));
  if (is_last(unit, pp_rank)) {
    step += tensor_all_gather(unit, pp_rank, mean * double(spec.vocab_size) * size);
  }
  return step * totals.steps;
}

}  // namespace

Work generation_work(const UnitView& unit) {
  const Workload& workload = unit.job->workload;
  const ModelSpec& spec = unit.model->spec;
  const double waves = unit.stage->waves;
  const double sequences = double(ceil_div(workload.samples, unit.stage->dp())) / waves;
  // The responses to a prompt are written by one unit, which computes it once.
  const double prompts = std::ceil(sequences / double(workload.samples_per_prompt));
  const auto prompt = double(workload.prompt_tokens);
  const DecodeTotals totals = decode_totals(unit, sequences);
  const double hidden_size = double(spec.hidden_size) * weight_size(unit);

  Work work;
  for (int pp_rank = 0; pp_rank < unit.stage->layout.pp; ++pp_rank) {
    work[OpClass::kDecode] += forward_pass(unit, pp_rank, {prompts, prompt, sequences});
    work[OpClass::kDecode] += decode_compute(unit, pp_rank, totals);
    work[OpClass::kTensorComm] += tensor_all_reduce(unit, pp_rank, prompts * prompt * hidden_size) *
                                  (2.0 * blocks_of(unit, pp_rank));
    work[OpClass::kTensorComm] += decode_collectives(unit, pp_rank, totals);
    work[OpClass::kPipelineComm] += to_next_stage(unit, pp_rank, prompts * prompt * hidden_size);
    work[OpClass::kPipelineComm] +=
        to_next_stage(unit, pp_rank, totals.tokens / totals.steps * hidden_size) * totals.steps;
  }
  for (auto& [op_class, operations] : work) operations *= waves;
  return work;
}

}  // namespace nereus
