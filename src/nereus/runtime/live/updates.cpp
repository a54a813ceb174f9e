#include "nereus/runtime/live/updates.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "nereus/runtime/engine/optimizer.h"
#include "nereus/runtime/live/pass_support.h"
#include "nereus/runtime/rl/loss.h"
#include "nereus/runtime/rl/minibatch.h"

namespace nereus {

namespace {

// The loss of one micro-batch and what it adds to the metrics.
using SampleLoss = std::function<Loss(const UnitEngine&, const TokenOutputs&, const SampleBatch&)>;

// What the optimizer steps of a model have in common.
struct Training {
  Runtime& runtime;
  Experience& experience;
  const LiveOptions& options;
  OptimizerOptions optimizer;  // with this step's learning rate
  bool fills_old_log_probs = false;
};

PassResult update_once(const Training& training, ModelStage model_stage,
                       const std::vector<int64_t>& mini_batch, PassOptions pass,
                       const SampleLoss& loss) {
  const StagePlan& stage = at(training.runtime.plan(), model_stage);
  pass.recompute = stage.recompute;
  // One slot per unit, added up in order afterwards: the same bits in every run.
  std::vector<Metrics> metrics_of_unit(stage.dp());
  UpdateResult updated;

  PassResult result;
  result.by_class =
      training.runtime.run(model_stage, OpClass::kCompute, [&](UnitEngine& engine, int unit) {
        const std::vector<SampleBatch> batches =
            micro_batches(training.experience, share_of(mini_batch, unit, stage.dp()),
                          stage.micro_batch, engine.device());
        const LossFunction loss_of = [&](const TokenOutputs& outputs, int index) {
          Loss value = loss(engine, outputs, batches[index]);
          if (engine.speaks()) {
            for (const auto& [key, amount] : value.metrics) metrics_of_unit[unit][key] += amount;
          }
          return value.loss;
        };
        const UpdateResult of_unit =
            engine.update(inputs_of(batches), pass, loss_of, training.optimizer);
        if (unit == 0 && engine.speaks()) updated = of_unit;
      });

  for (const Metrics& unit_metrics : metrics_of_unit) {
    for (const auto& [key, amount] : unit_metrics) result.metrics[key] += amount;
  }
  const std::string role = to_string(model_stage.role);
  result.metrics[role + "/grad_norm"] = updated.grad_norm;
  result.metrics[role + "/lr"] = training.optimizer.lr;
  return result;
}

PassResult update(const Training& training, ModelStage model_stage,
                  const std::vector<int64_t>& mini_batch, const PassOptions& pass,
                  const SampleLoss& loss) {
  return with_micro_batches_that_fit(training.runtime, model_stage, [&] {
    return update_once(training, model_stage, mini_batch, pass, loss);
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

PassResult update_actor(const Training& training, const std::vector<int64_t>& mini_batch,
                        StopToken stop) {
  Experience& experience = training.experience;
  const LiveOptions& options = training.options;
  const PolicyLossOptions& policy = options.ppo.policy;
  const TokenWeights weights(policy.aggregation, experience, mini_batch,
                             static_cast<double>(options.response_length.longest()));
  const PassOptions pass{
      .temperature = options.sampling.temperature, .with_entropy = true, .stop = stop};
  return update(
      training, kActorTraining, mini_batch, pass,
      [&](const UnitEngine& engine, const TokenOutputs& outputs, const SampleBatch& batch) {
        const at::TensorOptions tensor = engine.loss_options();
        PolicyTargets targets;
        if (training.fills_old_log_probs) {
          targets.old_log_probs = outputs.log_probs.detach().to(tensor);
          if (engine.speaks()) {
            scatter(targets.old_log_probs, batch.samples, &Sample::old_log_probs, experience);
          }
        } else {
          targets.old_log_probs = gather(experience, batch.samples, &Sample::old_log_probs, tensor);
        }
        targets.advantages = gather(experience, batch.samples, &Sample::advantages, tensor);
        if (policy.use_kl_loss) {
          targets.ref_log_probs = gather(experience, batch.samples, &Sample::ref_log_probs, tensor);
        }
        targets.weights = weights.of_loss(batch, tensor);
        targets.metric_weights = weights.of_metrics(batch, tensor);
        return policy_loss({outputs.log_probs, outputs.entropy}, targets, policy);
      });
}

PassResult update_critic(const Training& training, const std::vector<int64_t>& mini_batch,
                         StopToken stop) {
  const Experience& experience = training.experience;
  const ValueLossOptions& value = training.options.ppo.value;
  const TokenWeights weights(value.aggregation, experience, mini_batch,
                             static_cast<double>(training.options.response_length.longest()));
  return update(
      training, kCriticTraining, mini_batch, PassOptions{.stop = stop},
      [&](const UnitEngine& engine, const TokenOutputs& outputs, const SampleBatch& batch) {
        const at::TensorOptions tensor = engine.loss_options();
        ValueTargets targets;
        targets.old_values = gather(experience, batch.samples, &Sample::values, tensor);
        targets.returns = gather(experience, batch.samples, &Sample::returns, tensor);
        targets.weights = weights.of_loss(batch, tensor);
        targets.metric_weights = weights.of_metrics(batch, tensor);
        return value_loss(outputs.values, targets, value);
      });
}

// Indices into the experience, without the mini-batches that teach nothing: an optimizer step
// without any gradient would still move weights by what the moments hold.
std::vector<std::vector<int64_t>> batches_of(const Experience& experience, int step,
                                             const LiveOptions& options) {
  auto batches =
      mini_batches(std::ssize(experience), options.ppo.mini_batch * options.data.samples_per_prompt,
                   options.ppo.epochs, /*shuffle=*/false, options.seed, step);
  std::erase_if(batches, [&](const std::vector<int64_t>& batch) {
    return std::ranges::none_of(
        batch, [&](int64_t index) { return learnable_tokens(experience[index]) > 0; });
  });
  return batches;
}

}  // namespace

PassResult update_model(Runtime& runtime, Role role, Experience& experience, int step,
                        const LiveOptions& options, bool fills_old_log_probs, StopToken stop) {
  const bool is_actor = role == Role::kActor;
  Training training{runtime, experience, options,
                    is_actor ? options.actor_optimizer : options.critic_optimizer,
                    fills_old_log_probs};
  training.optimizer.lr = learning_rate(training.optimizer, step);
  const std::vector<std::vector<int64_t>> batches = batches_of(experience, step, options);
  const double share = 1.0 / static_cast<double>(batches.size());
  PassResult whole{.idle = batches.empty()};
  for (const std::vector<int64_t>& batch : batches) {
    // The token counts up to the first change of the weights.
    const StopToken now = std::exchange(stop, StopToken());
    const PassResult result =
        is_actor ? update_actor(training, batch, now) : update_critic(training, batch, now);
    for (const auto& [op_class, seconds] : result.by_class) whole.by_class[op_class] += seconds;
    for (const auto& [key, value] : result.metrics) whole.metrics[key] += value * share;
  }
  return whole;
}

}  // namespace nereus
