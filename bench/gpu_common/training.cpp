#include "gpu_common/training.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <numeric>

#include "common/record.h"
#include "nereus/core/cost/memory.h"
#include "nereus/runtime/cuda/device.h"
#include "nereus/runtime/engine/stopwatch.h"
#include "nereus/runtime/live/micro_batches.h"

namespace nereus::bench {

namespace {

// Sequences of random tokens, of which all but the first are trained on.
Experience random_experience(const ModelSpec& spec, const TrainingCase& parameters) {
  const at::Tensor tokens =
      at::randint(spec.vocab_size, {parameters.sequences, parameters.length}, at::kLong);
  Experience experience(parameters.sequences);
  for (int64_t i = 0; i < parameters.sequences; ++i) {
    const int64_t* row = tokens.const_data_ptr<int64_t>() + i * parameters.length;
    experience[i].prompt = {row[0]};
    experience[i].response.assign(row + 1, row + parameters.length);
  }
  return experience;
}

Plan plan_of(const TrainingCase& parameters, ModelStage stage) {
  Plan plan = actor_plan(stage, {parameters.tp, 1}, parameters.dp);
  plan.stages.front().micro_batch = static_cast<int>(parameters.micro_batch);
  plan.stages.front().recompute = parameters.recompute;
  return plan;
}

void ignore(const std::string&) {}

}  // namespace

class GradientPass {
 public:
  GradientPass(const ModelSpec& spec, const UnitState& state, UnitComms comms)
      : comms_(std::move(comms)),
        weights_(leaves(state)),
        stage_(spec, state.emu().layout, state.rank(), weights_, *comms_.tp) {}

  void run(const std::vector<MicroBatch>& inputs, const PassOptions& pass,
           const LossFunction& loss) {
    run_1f1b(stage_, *comms_.pp, inputs, pass, loss);
    for (auto& [name, weight] : weights_) weight.mutable_grad().reset();
  }

 private:
  static ParameterMap leaves(const UnitState& state) {
    ParameterMap weights = state.weights();
    for (auto& [name, weight] : weights) weight = weight.detach().requires_grad_(true);
    return weights;
  }

  UnitComms comms_;
  ParameterMap weights_;
  DecoderStage stage_;
};

Training::Training(const TrainingCase& parameters)
    : case_(parameters),
      spec_(shape_named(parameters.shape)),
      stage_{Role::kActor, parameters.update ? Stage::kTraining : Stage::kGeneration},
      plan_(plan_of(parameters, stage_)),
      state_(spec_, stage_, parameters.tp * parameters.dp),
      communicators_(first_gpus(cuda::device_count())),
      experience_(random_experience(spec_, parameters)) {
  state_.fill(plan_);
  auto comms = connect(plan_.stages.front(), communicators_);
  for (const Emu& unit : units_of(plan_.stages.front())) {
    for (const DeviceId device : unit.devices) {
      devices_.push_back(device);
      UnitState& state = state_.store().at(unit, device);
      if (case_.update) {
        engines_[device] = std::make_unique<UnitEngine>(spec_, state, comms.at(device));
      } else {
        passes_[device] = std::make_unique<GradientPass>(spec_, state, comms.at(device));
      }
    }
  }
}

Training::~Training() = default;

double Training::step() {
  const Stopwatch timer;
  state_.workers().run(
      devices_,
      [&](Worker& worker) {
        work(worker);
        worker.synchronise();
      },
      ignore);
  return timer.elapsed().count();
}

void Training::work(const Worker& worker) {
  std::vector<int64_t> samples(case_.sequences);
  std::iota(samples.begin(), samples.end(), 0);
  std::vector<MicroBatch> inputs;
  for (const SampleBatch& batch :
       micro_batches(experience_, samples, case_.micro_batch, worker.where().device())) {
    inputs.push_back(batch.input);
  }
  const PassOptions pass{.recompute = case_.recompute};
  const double share = 1.0 / static_cast<double>(inputs.size());
  const LossFunction loss = [share](const TokenOutputs& outputs, int) {
    return outputs.log_probs.mean().neg().mul(share);
  };
  if (case_.update) {
    engines_.at(worker.id())->update(inputs, pass, loss, OptimizerOptions{.lr = 1e-6});
  } else {
    passes_.at(worker.id())->run(inputs, pass, loss);
  }
}

Bytes Training::predicted_peak() const {
  JobSpec job = state_.job();
  job.execution = {.fused_kernels = true, .recomputes_only_what_is_read = true};
  job.workload = {.samples = case_.sequences * case_.dp,
                  .prompt_tokens = 1,
                  .response_mean = static_cast<double>(case_.length - 1),
                  .response_limit = case_.length - 1,
                  .mini_batch = case_.sequences * case_.dp};
  return predict_memory(plan_, job, Calibration()).peak.at(devices_.front());
}

GpuMemory memory_now() {
  const auto stats = c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(0);
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return {Bytes(stats.allocated_bytes[kAll].current), Bytes(stats.reserved_bytes[kAll].current)};
}

Json Training::report(Bytes before) {
  step();
  step();
  DeviceMemory& memory = state_.workers().at(devices_.front()).memory();
  memory.reset_peak();
  std::vector<double> seconds;
  for (int i = 0; i < case_.repeats; ++i) seconds.push_back(step());
  const double median = quantile(seconds, 0.5);
  const auto tokens = static_cast<double>(case_.sequences * case_.length * case_.dp);
  const double flops = 6.0 * static_cast<double>(num_parameters(spec_)) * tokens;
  const auto gib = [](Bytes bytes) { return static_cast<double>(bytes.count()) / (1 << 30); };
  Json record = {
      {"shape", case_.shape},
      {"tp", case_.tp},
      {"dp", case_.dp},
      {"update", case_.update},
      {"recompute", case_.recompute},
      {"sequences", case_.sequences},
      {"micro_batch", case_.micro_batch},
      {"length", case_.length},
      {"seconds", median},
      {"tokens_per_s", tokens / median},
      {"model_tflops_per_gpu", flops / median / 1e12 / static_cast<double>(devices_.size())},
      {"peak_gib", gib(memory.peak() - before)},
      {"reserved_gib", gib(memory_now().reserved)}};
  if (case_.update) record["predicted_peak_gib"] = gib(predicted_peak());
  return record;
}

}  // namespace nereus::bench
