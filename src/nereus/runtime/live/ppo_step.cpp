#include "nereus/runtime/live/ppo_step.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "nereus/core/base/error.h"
#include "nereus/core/base/log.h"
#include "nereus/runtime/rl/minibatch.h"
#include "nereus/runtime/rl/rewards/place_score.h"

namespace nereus {

namespace {

constexpr ModelStage kActorGeneration{Role::kActor, Stage::kGeneration};
constexpr ModelStage kActorTraining{Role::kActor, Stage::kTraining};
constexpr ModelStage kCriticTraining{Role::kCritic, Stage::kTraining};
constexpr ModelStage kRewardInference{Role::kReward, Stage::kInference};

// The part of `items` that replica `unit` of `dp` works on: contiguous, balanced.
std::vector<int64_t> share_of(const std::vector<int64_t>& items, int unit, int dp) {
  const auto count = static_cast<int64_t>(items.size());
  return {items.begin() + count * unit / dp, items.begin() + count * (unit + 1) / dp};
}

std::vector<int64_t> everything(const Experience& experience) {
  std::vector<int64_t> indices(experience.size());
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// Whether a pass gives an output per response token, or one per sample, at its last token.
enum class Outputs { kPerToken, kPerSample };

std::vector<MicroBatch> inputs_of(const std::vector<SampleBatch>& batches,
                                  Outputs outputs = Outputs::kPerToken) {
  std::vector<MicroBatch> inputs;
  for (const SampleBatch& batch : batches) {
    inputs.push_back(outputs == Outputs::kPerToken ? batch.input : with_last_tokens(batch.input));
  }
  return inputs;
}

// Runs a pass, and again after each time that it ran out of memory, as long as make_room() can say
// what will be smaller.
template <class Pass, class MakeRoom>
auto within_memory(ModelStage model_stage, const Pass& pass, const MakeRoom& make_room) {
  while (true) {
    try {
      return pass();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfMemory) throw;
      const std::optional<std::string> smaller = make_room();
      if (!smaller) throw;
      log::warn(to_string(model_stage) + ": " + error.what() + "; going on with " + *smaller);
    }
  }
}

// With smaller and smaller micro-batches: they change no result, only the order in which sums are
// added.
template <class Pass>
auto with_micro_batches_that_fit(Runtime& runtime, ModelStage model_stage, const Pass& pass) {
  const int64_t updates = runtime.updates(model_stage);
  return within_memory(model_stage, pass, [&]() -> std::optional<std::string> {
    if (!runtime.halve_micro_batch(model_stage, updates)) return std::nullopt;
    return "micro-batches of " + std::to_string(at(runtime.plan(), model_stage).micro_batch);
  });
}

// Runs forward passes over all samples and hands each micro-batch's outputs to `take`, once per
// unit.
NodeTiming infer(Runtime& runtime, const std::string& name, ModelStage model_stage,
                 const Experience& experience, const PassOptions& options,
                 const std::function<void(const TokenOutputs&, const SampleBatch&)>& take,
                 Outputs which = Outputs::kPerToken) {
  return with_micro_batches_that_fit(runtime, model_stage, [&] {
    const StagePlan& stage = at(runtime.plan(), model_stage);
    return runtime.run(name, model_stage, OpClass::kCompute, [&](UnitEngine& engine, int unit) {
      const std::vector<SampleBatch> batches =
          micro_batches(experience, share_of(everything(experience), unit, stage.dp()),
                        stage.micro_batch, engine.device());
      const std::vector<TokenOutputs> outputs = engine.forward(inputs_of(batches, which), options);
      if (!engine.speaks()) return;
      for (size_t i = 0; i < batches.size(); ++i) take(outputs[i], batches[i]);
    });
  });
}

// The loss of one micro-batch and what it adds to the metrics.
using SampleLoss = std::function<Loss(const TokenOutputs&, const SampleBatch&, at::TensorOptions)>;

UpdateOutcome update_once(Runtime& runtime, const std::string& name, ModelStage model_stage,
                          const Experience& experience, const std::vector<int64_t>& mini_batch,
                          const OptimizerOptions& optimizer, PassOptions pass,
                          const SampleLoss& loss) {
  const StagePlan& stage = at(runtime.plan(), model_stage);
  pass.recompute = stage.recompute;
  // One slot per unit, added up in order afterwards: the same bits in every run.
  std::vector<Metrics> metrics_of_unit(stage.dp());
  UpdateResult result;

  UpdateOutcome outcome;
  outcome.timing =
      runtime.run(name, model_stage, OpClass::kCompute, [&](UnitEngine& engine, int unit) {
        const std::vector<SampleBatch> batches = micro_batches(
            experience, share_of(mini_batch, unit, stage.dp()), stage.micro_batch, engine.device());
        const auto options = engine.loss_options();
        const LossFunction loss_of = [&](const TokenOutputs& outputs, int index) {
          Loss value = loss(outputs, batches[index], options);
          if (engine.speaks()) {
            for (const auto& [key, amount] : value.metrics) metrics_of_unit[unit][key] += amount;
          }
          return value.loss;
        };
        const UpdateResult updated = engine.update(inputs_of(batches), pass, loss_of, optimizer);
        if (unit == 0 && engine.speaks()) result = updated;
      });

  for (const Metrics& unit_metrics : metrics_of_unit) {
    for (const auto& [key, amount] : unit_metrics) outcome.metrics[key] += amount;
  }
  const std::string role = to_string(model_stage.role);
  outcome.metrics[role + "/grad_norm"] = result.grad_norm;
  outcome.metrics[role + "/lr"] = optimizer.lr;
  return outcome;
}

UpdateOutcome update(Runtime& runtime, const std::string& name, ModelStage model_stage,
                     const Experience& experience, const std::vector<int64_t>& mini_batch,
                     const OptimizerOptions& optimizer, const PassOptions& pass,
                     const SampleLoss& loss) {
  return with_micro_batches_that_fit(runtime, model_stage, [&] {
    return update_once(runtime, name, model_stage, experience, mini_batch, optimizer, pass, loss);
  });
}

// Weights of the tokens of a mini-batch's samples, by index into the experience.
class TokenWeights {
 public:
  TokenWeights(LossAggregation mode, const Experience& experience,
               const std::vector<int64_t>& mini_batch, double horizon)
      : experience_(experience),
        loss_(by_sample(mode, mini_batch, horizon)),
        metric_(by_sample(LossAggregation::kTokenMean, mini_batch, horizon)) {}

  at::Tensor of_loss(const SampleBatch& batch, const at::TensorOptions& options) const {
    return of(loss_, batch, options);
  }
  at::Tensor of_metrics(const SampleBatch& batch, const at::TensorOptions& options) const {
    return of(metric_, batch, options);
  }

 private:
  using BySample = std::map<int64_t, double>;

  BySample by_sample(LossAggregation mode, const std::vector<int64_t>& mini_batch,
                     double horizon) const {
    std::vector<int64_t> lengths;
    for (const int64_t index : mini_batch) {
      lengths.push_back(learnable_tokens(experience_[index]));
    }
    const std::vector<double> weights = sample_weights(mode, lengths, horizon);
    BySample result;
    for (size_t i = 0; i < mini_batch.size(); ++i) result[mini_batch[i]] = weights[i];
    return result;
  }

  at::Tensor of(const BySample& by_sample, const SampleBatch& batch,
                const at::TensorOptions& options) const {
    std::vector<double> weights;
    for (const int64_t index : batch.samples) {
      weights.insert(weights.end(), experience_[index].response.size(), by_sample.at(index));
    }
    return to_tensor(weights, options);
  }

  const Experience& experience_;
  BySample loss_, metric_;
};

UpdateOutcome update_actor(Runtime& runtime, const Experience& experience,
                           const std::vector<int64_t>& mini_batch, const LiveOptions& options,
                           StopToken stop) {
  const PolicyLossOptions& policy = options.ppo.policy;
  const TokenWeights weights(policy.aggregation, experience, mini_batch,
                             static_cast<double>(options.response_length.longest()));
  const PassOptions pass{
      .temperature = options.sampling.temperature, .with_entropy = true, .stop = stop};
  return update(
      runtime, "update_actor", kActorTraining, experience, mini_batch, options.actor_optimizer,
      pass, [&](const TokenOutputs& outputs, const SampleBatch& batch, at::TensorOptions tensor) {
        PolicyTargets targets;
        targets.old_log_probs = gather(experience, batch.samples, &Sample::old_log_probs, tensor);
        targets.advantages = gather(experience, batch.samples, &Sample::advantages, tensor);
        if (policy.use_kl_loss) {
          targets.ref_log_probs = gather(experience, batch.samples, &Sample::ref_log_probs, tensor);
        }
        targets.weights = weights.of_loss(batch, tensor);
        targets.metric_weights = weights.of_metrics(batch, tensor);
        return policy_loss(outputs, targets, policy);
      });
}

UpdateOutcome update_critic(Runtime& runtime, const Experience& experience,
                            const std::vector<int64_t>& mini_batch, const LiveOptions& options,
                            StopToken stop) {
  const ValueLossOptions& value = options.ppo.value;
  const TokenWeights weights(value.aggregation, experience, mini_batch,
                             static_cast<double>(options.response_length.longest()));
  return update(
      runtime, "update_critic", kCriticTraining, experience, mini_batch, options.critic_optimizer,
      PassOptions{.stop = stop},
      [&](const TokenOutputs& outputs, const SampleBatch& batch, at::TensorOptions tensor) {
        ValueTargets targets;
        targets.old_values = gather(experience, batch.samples, &Sample::values, tensor);
        targets.returns = gather(experience, batch.samples, &Sample::returns, tensor);
        targets.weights = weights.of_loss(batch, tensor);
        targets.metric_weights = weights.of_metrics(batch, tensor);
        return value_loss(outputs, targets, value);
      });
}

using Update = UpdateOutcome (*)(Runtime&, const Experience&, const std::vector<int64_t>&,
                                 const LiveOptions&, StopToken);

// `stop` counts up to the first change of the weights.
UpdateOutcome update_by_batches(Update update, Runtime& runtime, const Experience& experience,
                                const std::vector<std::vector<int64_t>>& batches,
                                const LiveOptions& options, StopToken stop) {
  const double share = 1.0 / static_cast<double>(batches.size());
  UpdateOutcome whole;
  for (const std::vector<int64_t>& batch : batches) {
    const UpdateOutcome outcome =
        update(runtime, experience, batch, options, std::exchange(stop, StopToken()));
    whole.timing.name = outcome.timing.name;
    whole.timing.total += outcome.timing.total;
    for (const auto& [op_class, seconds] : outcome.timing.by_class) {
      whole.timing.by_class[op_class] += seconds;
    }
    for (const auto& [key, value] : outcome.metrics) whole.metrics[key] += value * share;
  }
  return whole;
}

}  // namespace

NodeTiming generate_responses(Runtime& runtime, Experience& experience, uint64_t version,
                              const GenerationOptions& options) {
  const StagePlan& stage = at(runtime.plan(), kActorGeneration);
  const auto generate = [&](UnitEngine& engine, const std::vector<int64_t>& samples) {
    std::vector<GenerationRequest> requests;
    for (const int64_t index : samples) {
      requests.push_back({experience[index].id, experience[index].prompt});
    }
    std::vector<GenerationResult> results = engine.generate(requests, options);
    if (!engine.speaks()) return;
    for (size_t i = 0; i < samples.size(); ++i) {
      Sample& sample = experience[samples[i]];
      sample.response = std::move(results[i].tokens);
      sample.rollout_log_probs = std::move(results[i].log_probs);
      sample.finished = results[i].finished;
    }
  };
  const auto pass = [&] {
    const int waves = at(runtime.plan(), kActorGeneration).waves;
    return runtime.run(
        "gen", kActorGeneration, OpClass::kDecode, [&](UnitEngine& engine, int unit) {
          NEREUS_CHECK(engine.state().version == version,
                       "generation has weights of version " +
                           std::to_string(engine.state().version) + ", training is at " +
                           std::to_string(version));
          const std::vector<int64_t> mine = share_of(everything(experience), unit, stage.dp());
          for (int wave = 0; wave < waves; ++wave) generate(engine, share_of(mine, wave, waves));
        });
  };
  return within_memory(kActorGeneration, pass, [&]() -> std::optional<std::string> {
    if (!runtime.double_waves(experience.size())) return std::nullopt;
    return "responses in " + std::to_string(at(runtime.plan(), kActorGeneration).waves) + " waves";
  });
}

NodeTiming infer_log_probs(Runtime& runtime, const std::string& name, ModelStage model_stage,
                           Experience& experience, std::vector<double> Sample::* member,
                           const PassOptions& options) {
  return infer(runtime, name, model_stage, experience, options,
               [&](const TokenOutputs& outputs, const SampleBatch& batch) {
                 scatter(outputs.log_probs, batch.samples, member, experience);
               });
}

NodeTiming infer_values(Runtime& runtime, Experience& experience, StopToken stop) {
  return infer(runtime, "values", kCriticTraining, experience, PassOptions{.stop = stop},
               [&](const TokenOutputs& outputs, const SampleBatch& batch) {
                 scatter(outputs.values, batch.samples, &Sample::values, experience);
               });
}

std::vector<UpdateOutcome> update_models(Runtime& runtime, const Experience& experience, int step,
                                         const LiveOptions& options) {
  auto batches =
      mini_batches(std::ssize(experience), options.ppo.mini_batch * options.data.samples_per_prompt,
                   options.ppo.epochs, /*shuffle=*/false, options.seed, step);
  // An optimizer step without any gradient would still move weights by what the moments hold.
  std::erase_if(batches, [&](const std::vector<int64_t>& batch) {
    return std::ranges::none_of(
        batch, [&](int64_t index) { return learnable_tokens(experience[index]) > 0; });
  });
  std::vector<UpdateOutcome> outcomes;
  if (batches.empty()) return outcomes;
  LiveOptions now = options;  // with the learning rates of this step
  now.actor_optimizer.lr = learning_rate(options.actor_optimizer, step);
  now.critic_optimizer.lr = learning_rate(options.critic_optimizer, step);
  StopToken stop = options.stop;
  if (options.critic) {
    outcomes.push_back(update_by_batches(update_critic, runtime, experience, batches, now,
                                         std::exchange(stop, StopToken())));
  }
  outcomes.push_back(update_by_batches(update_actor, runtime, experience, batches, now, stop));
  return outcomes;
}

NodeTiming infer_scores(Runtime& runtime, Experience& experience, StopToken stop) {
  const auto take = [&](const TokenOutputs& outputs, const SampleBatch& batch) {
    const at::Tensor scores = outputs.values.to(at::kCPU, at::kDouble);
    for (size_t i = 0; i < batch.samples.size(); ++i) {
      const double score = scores[static_cast<int64_t>(i)].item<double>();
      place_score(experience[batch.samples[i]], {.score = score});
    }
  };
  NodeTiming timing = infer(runtime, "reward", kRewardInference, experience,
                            PassOptions{.stop = stop}, take, Outputs::kPerSample);
  for (const Sample& sample : experience) {
    if (std::isfinite(sample.score)) continue;
    throw Error(ErrorCode::kNumeric, "the reward model's score of sample " +
                                         std::to_string(sample.id) + " is not finite");
  }
  return timing;
}

}  // namespace nereus
