#include "gpu_common/generation.h"

#include <ATen/ATen.h>

#include "nereus/runtime/cuda/device.h"
#include "nereus/runtime/engine/stopwatch.h"

namespace nereus::bench {

namespace {

std::vector<GenerationRequest> random_requests(const ModelSpec& spec, int64_t sequences,
                                               int64_t prompt) {
  const at::Tensor tokens = at::randint(spec.vocab_size, {sequences, prompt}, at::kLong);
  std::vector<GenerationRequest> requests(sequences);
  for (int64_t i = 0; i < sequences; ++i) {
    const int64_t* row = tokens.const_data_ptr<int64_t>() + i * prompt;
    requests[i] = {static_cast<uint64_t>(i), {row, row + prompt}};
  }
  return requests;
}

}  // namespace

Generation::Generation(const GenerationCase& parameters)
    : plan_(actor_plan(kActorGeneration, {parameters.tp, 1}, parameters.dp)),
      state_(shape_named(parameters.shape), kActorGeneration, parameters.tp * parameters.dp),
      communicators_(first_gpus(cuda::device_count())) {
  const ModelSpec spec = shape_named(parameters.shape);
  state_.fill(plan_);
  auto comms = connect(plan_.stages.front(), communicators_);
  for (const Emu& unit : units_of(plan_.stages.front())) {
    for (const DeviceId device : unit.devices) {
      devices_.push_back(device);
      engines_[device] =
          std::make_unique<UnitEngine>(spec, state_.store().at(unit, device), comms.at(device));
    }
  }
  requests_ = random_requests(spec, parameters.sequences, parameters.prompt);
}

double Generation::seconds(int64_t new_tokens) {
  const GenerationOptions options{.max_new_tokens = new_tokens, .ignore_eos = true};
  const Stopwatch timer;
  state_.workers().run(
      devices_,
      [&](Worker& worker) {
        engines_.at(worker.id())->generate(requests_, options);
        worker.synchronise();
      },
      [](const std::string&) {});
  return timer.elapsed().count();
}

}  // namespace nereus::bench
