#include "nereus/runtime/live/passes.h"

#include <ATen/ATen.h>

#include <cmath>

#include "nereus/runtime/live/pass_support.h"
#include "nereus/runtime/rl/minibatch.h"
#include "nereus/runtime/rl/rewards/place_score.h"

namespace nereus {

namespace {

// Runs forward passes over all samples and hands each micro-batch's outputs to `take`, once per
// unit.
PassResult infer(Runtime& runtime, ModelStage model_stage, const Experience& experience,
                 const PassOptions& options,
                 const std::function<void(const TokenOutputs&, const SampleBatch&)>& take,
                 Outputs which = Outputs::kPerToken) {
  return with_micro_batches_that_fit(runtime, model_stage, [&]() -> PassResult {
    const StagePlan& stage = at(runtime.plan(), model_stage);
    return {runtime.run(model_stage, OpClass::kCompute, [&](UnitEngine& engine, int unit) {
      const std::vector<SampleBatch> batches =
          micro_batches(experience, share_of(everything(experience), unit, stage.dp()),
                        stage.micro_batch, engine.device());
      const std::vector<TokenOutputs> outputs = engine.forward(inputs_of(batches, which), options);
      if (!engine.speaks()) return;
      for (size_t i = 0; i < batches.size(); ++i) take(outputs[i], batches[i]);
    })};
  });
}

}  // namespace

PassResult generate_responses(Runtime& runtime, Experience& experience, uint64_t version,
                              const GenerationOptions& options,
                              const std::function<void(size_t)>& written) {
  const StagePlan& stage = at(runtime.plan(), kActorGeneration);
  const auto generate = [&](UnitEngine& engine, const std::vector<int64_t>& samples, int waves) {
    // The plan's waves say for which part of the samples the cache has room at once.
    GenerationOptions limited = options;
    limited.cache_parts = waves;
    limited.max_sequences = (std::ssize(samples) + waves - 1) / waves;
    std::vector<GenerationRequest> requests;
    for (const int64_t index : samples) {
      requests.push_back({experience[index].id, experience[index].prompt});
    }
    const auto take = [&](size_t request, const GenerationResult& result) {
      Sample& sample = experience[samples[request]];
      sample.response = result.tokens;
      sample.rollout_log_probs = result.log_probs;
      sample.finished = result.finished;
      if (written) written(samples[request]);
    };
    if (engine.speaks()) limited.on_finished = take;
    engine.generate(requests, limited);
  };
  const auto pass = [&]() -> PassResult {
    const int waves = at(runtime.plan(), kActorGeneration).waves;
    return {runtime.run(kActorGeneration, OpClass::kDecode, [&](UnitEngine& engine, int unit) {
      NEREUS_CHECK(engine.state().version == version,
                   "generation has weights of version " + std::to_string(engine.state().version) +
                       ", training is at " + std::to_string(version));
      const std::vector<int64_t> mine = share_of(everything(experience), unit, stage.dp());
      generate(engine, mine, waves);
    })};
  };
  return within_memory(kActorGeneration, pass, [&]() -> std::optional<std::string> {
    if (!runtime.double_waves(experience.size())) return std::nullopt;
    return "responses in " + std::to_string(at(runtime.plan(), kActorGeneration).waves) + " waves";
  });
}

PassResult infer_log_probs(Runtime& runtime, ModelStage model_stage, Experience& experience,
                           std::vector<double> Sample::* member, const PassOptions& options) {
  return infer(runtime, model_stage, experience, options,
               [&](const TokenOutputs& outputs, const SampleBatch& batch) {
                 scatter(outputs.log_probs, batch.samples, member, experience);
               });
}

PassResult infer_values(Runtime& runtime, Experience& experience, StopToken stop) {
  return infer(runtime, kCriticTraining, experience, PassOptions{.stop = stop},
               [&](const TokenOutputs& outputs, const SampleBatch& batch) {
                 scatter(outputs.values, batch.samples, &Sample::values, experience);
               });
}

PassResult infer_scores(Runtime& runtime, Experience& experience, StopToken stop) {
  const auto take = [&](const TokenOutputs& outputs, const SampleBatch& batch) {
    const at::Tensor scores = outputs.values.to(at::kCPU, at::kDouble);
    for (size_t i = 0; i < batch.samples.size(); ++i) {
      const double score = scores[static_cast<int64_t>(i)].item<double>();
      place_score(experience[batch.samples[i]], {.score = score});
    }
  };
  PassResult result = infer(runtime, kRewardInference, experience, PassOptions{.stop = stop}, take,
                            Outputs::kPerSample);
  for (const Sample& sample : experience) {
    if (std::isfinite(sample.score)) continue;
    throw Error(ErrorCode::kNumeric, "the reward model's score of sample " +
                                         std::to_string(sample.id) + " is not finite");
  }
  return result;
}

}  // namespace nereus
