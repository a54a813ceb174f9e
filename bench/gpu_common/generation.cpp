#include "gpu_common/generation.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nereus/runtime/cuda/device.h"
#include "nereus/runtime/engine/stopwatch.h"

namespace nereus::bench {

namespace {

std::vector<GenerationRequest> random_requests(const ModelSpec& spec,
                                               const GenerationCase& parameters) {
  const int64_t prompts = parameters.sequences / parameters.responses, length = parameters.prompt;
  const at::Tensor tokens = at::randint(spec.vocab_size, {prompts, length}, at::kLong);
  std::vector<GenerationRequest> requests(parameters.sequences);
  for (int64_t i = 0; i < parameters.sequences; ++i) {
    const int64_t* row = tokens.const_data_ptr<int64_t>() + i / parameters.responses * length;
    requests[i] = {static_cast<uint64_t>(i), {row, row + length}};
    if (!parameters.limits.empty()) requests[i].max_new_tokens = parameters.limits.at(i);
  }
  return requests;
}

}  // namespace

Generation::Generation(const GenerationCase& parameters)
    : spec_(shape_named(parameters.shape)),
      parameters_(parameters),
      plan_(actor_plan(kActorGeneration, {parameters.tp, 1}, parameters.dp)),
      state_(spec_, kActorGeneration, parameters.tp * parameters.dp),
      communicators_(first_gpus(cuda::device_count())) {
  state_.fill(plan_);
  auto comms = connect(plan_.stages.front(), communicators_);
  for (const Emu& unit : units_of(plan_.stages.front())) {
    for (const DeviceId device : unit.devices) {
      devices_.push_back(device);
      engines_[device] =
          std::make_unique<UnitEngine>(spec_, state_.store().at(unit, device), comms.at(device));
    }
  }
}

void Generation::warm_up() {
  constexpr int64_t kFew = 40;
  std::vector<GenerationRequest> requests = random_requests(spec_, parameters_);
  for (GenerationRequest& request : requests) {
    request.max_new_tokens = std::min(request.max_new_tokens, kFew);
  }
  run(requests, kFew);
}

double Generation::seconds(int64_t new_tokens) {
  return run(random_requests(spec_, parameters_), new_tokens);
}

double Generation::run(const std::vector<GenerationRequest>& requests, int64_t new_tokens) {
  const GenerationOptions options{
      .max_new_tokens = new_tokens, .ignore_eos = true, .max_sequences = parameters_.at_once};
  const Stopwatch timer;
  state_.workers().run(
      devices_,
      [&](Worker& worker) {
        engines_.at(worker.id())->generate(requests, options);
        worker.synchronise();
      },
      [](const std::string&) {});
  return timer.elapsed().count();
}

}  // namespace nereus::bench
