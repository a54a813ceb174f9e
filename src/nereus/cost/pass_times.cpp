#include "nereus/cost/pass_times.h"

#include <algorithm>
#include <functional>

#include "nereus/cost/collectives.h"

namespace nereus {
namespace {

// An eager operator costs this much besides its arithmetic: what small models and single-token
// steps are bound by. About 30 operators make a block; backward counts as two forwards.
constexpr double kOperatorSeconds = 5e-6;
constexpr double kOperatorsPerBlock = 30;
// AdamW reads weight, gradient and both moments and writes three of them: 7 passes, single
// precision.
constexpr double kOptimizerBytes = 7 * 4;

// Time of one micro-batch on one pipeline stage.
struct StageTime {
  double compute = 0;
  double tensor_comm = 0;
  double pipeline_comm = 0;
};

double element_size(const UnitView& unit) { return double(size_of(unit.model->weights).count()); }

int blocks_of(const UnitView& unit, int pp_rank) {
  const LayerRange layers =
      stage_layers(unit.model->spec.num_layers, unit.stage->layout.pp, pp_rank);
  return layers.end - layers.begin;
}

LinkSpec tensor_link(const UnitView& unit, int pp_rank) {
  const int tp = unit.stage->layout.tp;
  return slowest_link(*unit.cluster, unit.devices.subspan(size_t(pp_rank) * tp, tp));
}

// To the next stage; the last stage sends nothing.
Seconds boundary_time(const UnitView& unit, int pp_rank, double bytes) {
  const Layout layout = unit.stage->layout;
  if (pp_rank + 1 == layout.pp) return {};
  const DeviceId from = unit.devices[size_t(pp_rank) * layout.tp];
  const DeviceId to = unit.devices[size_t(pp_rank + 1) * layout.tp];
  return send_time(bytes, link(*unit.cluster, from, to));
}

// Forward FLOPs of `sequences` of `length` tokens, `outputs` of them with logits, on one TP rank.
// Causal attention: half of 4 · length² · heads · head_dim.
double forward_flops(const UnitView& unit, int pp_rank, double sequences, double length,
                     double outputs) {
  const ModelSpec& spec = unit.model->spec;
  const double attention = 2 * length * length * spec.num_heads * spec.head_dim;
  double flops = blocks_of(unit, pp_rank) * sequences *
                 (2 * double(block_parameters(spec)) * length + attention);
  if (pp_rank + 1 == unit.stage->layout.pp) {
    flops += 2 * double(head_parameters(spec)) * sequences * outputs;
  }
  return flops / unit.stage->layout.tp;
}

double overhead(const UnitView& unit, int pp_rank) {
  return kOperatorSeconds * kOperatorsPerBlock * blocks_of(unit, pp_rank);
}

StageTime micro_batch_time(const UnitView& unit, int pp_rank, double sequences, PassShape shape) {
  const double length = double(unit.workload->prompt_tokens) + unit.workload->response_mean;
  const double flops =
      forward_flops(unit, pp_rank, sequences, length, unit.workload->response_mean);
  const double hidden_bytes =
      sequences * length * double(unit.model->spec.hidden_size) * element_size(unit);
  const Seconds all_reduce =
      all_reduce_time(hidden_bytes, unit.stage->layout.tp, tensor_link(unit, pp_rank));
  return {
      .compute = shape.forwards * (flops / unit.cluster->device.flops + overhead(unit, pp_rank)) /
                 unit.share,
      .tensor_comm = all_reduce.count() * shape.all_reduces * blocks_of(unit, pp_rank),
      .pipeline_comm = boundary_time(unit, pp_rank, hidden_bytes).count() * shape.sends,
  };
}

// One new token for each of `sequences`: weights and cache are read once, whichever is slower of
// reading and computing decides.
StageTime decode_step_time(const UnitView& unit, int pp_rank, double weights, double sequences) {
  const ModelSpec& spec = unit.model->spec;
  const int tp = unit.stage->layout.tp;
  const double size = element_size(unit);
  const double length = double(unit.workload->prompt_tokens) + unit.workload->response_mean / 2;
  const double cache = sequences * length * 2 * blocks_of(unit, pp_rank) * spec.head_dim *
                       double(largest_share(spec.num_kv_heads, tp));
  const double reading = weights * size / unit.cluster->device.memory_bandwidth;
  const double computing =
      forward_flops(unit, pp_rank, sequences, 1, 1) / unit.cluster->device.flops;
  const double local = std::max(reading, computing) +
                       cache * size / unit.cluster->device.memory_bandwidth +
                       overhead(unit, pp_rank);
  const LinkSpec tp_link = tensor_link(unit, pp_rank);
  const double hidden_bytes = sequences * double(spec.hidden_size) * size;
  double comm = all_reduce_time(hidden_bytes, tp, tp_link).count() * 2 * blocks_of(unit, pp_rank);
  if (pp_rank + 1 == unit.stage->layout.pp) {
    comm += all_gather_time(sequences * double(spec.vocab_size) * size, tp, tp_link).count();
  }
  return {.compute = local / unit.share,
          .tensor_comm = comm,
          .pipeline_comm = boundary_time(unit, pp_rank, hidden_bytes).count()};
}

// Σ t + (count - 1) · max t over the stages.
StageTime through_pipeline(const std::vector<StageTime>& stages, double count) {
  const auto total = [&](double StageTime::* part) {
    double sum = 0, largest = 0;
    for (const StageTime& stage : stages) {
      sum += stage.*part;
      largest = std::max(largest, stage.*part);
    }
    return sum + (count - 1) * largest;
  };
  return {total(&StageTime::compute), total(&StageTime::tensor_comm),
          total(&StageTime::pipeline_comm)};
}

std::vector<StageTime> per_stage(const UnitView& unit, const std::function<StageTime(int)>& time) {
  std::vector<StageTime> stages;
  for (int pp_rank = 0; pp_rank < unit.stage->layout.pp; ++pp_rank) {
    stages.push_back(time(pp_rank));
  }
  return stages;
}

void add(ClassTimes& times, OpClass op_class, double seconds) {
  if (seconds > 0) times[op_class] += Seconds(seconds);
}

}  // namespace

ClassTimes pipeline_times(const UnitView& unit, MicroBatches batches, PassShape shape) {
  const std::vector<StageTime> stages = per_stage(unit, [&](int pp_rank) {
    return micro_batch_time(unit, pp_rank, double(batches.size), shape);
  });
  const StageTime total = through_pipeline(stages, double(batches.count));
  ClassTimes times;
  add(times, OpClass::kCompute, total.compute);
  add(times, OpClass::kTensorComm, total.tensor_comm);
  add(times, OpClass::kPipelineComm, total.pipeline_comm);
  return times;
}

ClassTimes generation_times(const UnitView& unit) {
  const Workload& workload = *unit.workload;
  const double sequences = double(ceil_div(workload.samples, unit.stage->dp()));
  const std::vector<int64_t> weights = weight_elements(unit.model->spec, unit.stage->layout);
  const int tp = unit.stage->layout.tp;
  // One batch at a time passes the stages, so they take turns.
  const StageTime step = through_pipeline(
      per_stage(unit,
                [&](int pp_rank) {
                  return decode_step_time(unit, pp_rank, double(weights[size_t(pp_rank) * tp]),
                                          sequences);
                }),
      1);
  const StageTime prefill = through_pipeline(
      per_stage(unit,
                [&](int pp_rank) {
                  const double flops =
                      forward_flops(unit, pp_rank, sequences, double(workload.prompt_tokens), 1);
                  return StageTime{.compute = flops / unit.cluster->device.flops / unit.share};
                }),
      1);

  ClassTimes times;
  add(times, OpClass::kDecode, prefill.compute + workload.response_mean * step.compute);
  add(times, OpClass::kTensorComm, workload.response_mean * step.tensor_comm);
  add(times, OpClass::kPipelineComm, workload.response_mean * step.pipeline_comm);
  return times;
}

Seconds optimizer_time(const UnitView& unit) {
  const int64_t fullest = std::ranges::max(weight_elements(unit.model->spec, unit.stage->layout));
  return Seconds(kOptimizerBytes * double(fullest) / unit.cluster->device.memory_bandwidth /
                 unit.share);
}

}  // namespace nereus
