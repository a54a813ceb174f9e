#include "nereus/app/assemble/job.h"

#include <string>
#include <utility>
#include <vector>

namespace nereus {

namespace {

// As verl reads them, cut to whole steps.
int64_t warmup_steps(const OptimConfig& optim, int64_t steps) {
  if (optim.lr_warmup_steps > 0) return optim.lr_warmup_steps;
  return static_cast<int64_t>(optim.lr_warmup_steps_ratio * static_cast<double>(steps));
}

OptimizerOptions optimizer_options(const OptimConfig& optim, double grad_clip, int64_t steps) {
  return {.lr = optim.lr,
          .beta1 = optim.betas[0],
          .beta2 = optim.betas[1],
          .eps = optim.eps,
          .weight_decay = optim.weight_decay,
          .grad_clip = grad_clip,
          .lr_warmup_steps = warmup_steps(optim, steps),
          .lr_scheduler = optim.lr_scheduler_type,
          .min_lr_ratio = optim.min_lr_ratio,
          .total_steps = steps};
}

}  // namespace

std::map<Role, ModelSource> model_sources(const Config& config) {
  const auto source = [](const ModelConfig& model) {
    return ModelSource{model.path, model.random_weights};
  };
  std::map<Role, ModelSource> sources = {{Role::kActor, source(config.model)}};
  if (algorithm(parse_advantage_estimator(config.algorithm.adv_estimator)).critic) {
    sources[Role::kCritic] = source(config.critic.model);
  }
  if (config.algorithm.use_kl_in_reward || config.actor.use_kl_loss) {
    sources[Role::kReference] = source(config.model);
  }
  if (config.reward_model.enable) sources[Role::kReward] = source(config.reward_model.model);
  return sources;
}

PpoOptions to_ppo_options(const Config& config) {
  const ActorConfig& actor = config.actor;
  const AlgorithmConfig& algorithm = config.algorithm;
  const LossAggregation aggregation = parse_loss_aggregation(actor.loss_agg_mode);
  return {.advantage = {.estimator = parse_advantage_estimator(algorithm.adv_estimator),
                        .norm_by_std = algorithm.norm_adv_by_std_in_grpo,
                        .gamma = algorithm.gamma,
                        .lam = algorithm.lam},
          .use_kl_in_reward = algorithm.use_kl_in_reward,
          .kl_penalty = parse_kl_estimator(algorithm.kl_penalty),
          .kl_coef = algorithm.kl_ctrl.kl_coef,
          .adaptive_kl = algorithm.kl_ctrl.type == "adaptive",
          .target_kl = algorithm.kl_ctrl.target_kl,
          .kl_horizon = algorithm.kl_ctrl.horizon,
          .mini_batch = actor.ppo_mini_batch_size,
          .epochs = actor.ppo_epochs,
          .always_old_log_probs = actor.calculate_old_log_prob == "always",
          .policy = {.clip_ratio_low = actor.clip_ratio_low.value_or(actor.clip_ratio),
                     .clip_ratio_high = actor.clip_ratio_high.value_or(actor.clip_ratio),
                     .clip_ratio_c = actor.clip_ratio_c,
                     .entropy_coeff = actor.entropy_coeff,
                     .use_kl_loss = actor.use_kl_loss,
                     .kl_loss_coef = actor.kl_loss_coef,
                     .kl_loss_type = parse_kl_estimator(actor.kl_loss_type),
                     .aggregation = aggregation},
          .value = {.cliprange_value = config.critic.cliprange_value, .aggregation = aggregation}};
}

OptimizerOptions to_actor_optimizer(const Config& config) {
  return optimizer_options(config.actor.optim, config.actor.grad_clip,
                           config.trainer.total_training_steps);
}

OptimizerOptions to_critic_optimizer(const Config& config) {
  return optimizer_options(config.critic.optim, config.critic.grad_clip,
                           config.trainer.total_training_steps);
}

LengthSchedule to_response_length(const Config& config) {
  return {config.data.max_response_length.entries};
}

JobSpec to_job_spec(const Config& config, bool on_gpus, int step) {
  const LengthSchedule lengths = to_response_length(config);
  JobParts parts{.dtype = parse_dtype(config.dtype),
                 .ppo = to_ppo_options(config),
                 .actor_optimizer = to_actor_optimizer(config),
                 .critic_optimizer = to_critic_optimizer(config),
                 .prompts = config.data.train_batch_size,
                 .samples_per_prompt = config.rollout.n,
                 .prompt_limit = config.data.max_prompt_length,
                 .response_limit = lengths.at(step),
                 .longest_response = lengths.longest(),
                 .total_steps = config.trainer.total_training_steps,
                 .on_gpus = on_gpus};
  for (const auto& [role, source] : model_sources(config)) {
    parts.models[role] = read_model_spec(source.path);
  }
  return make_job_spec(parts);
}

ControllerOptions to_controller_options(const Config& config) {
  const AdaptationConfig& adaptation = config.adaptation;
  std::map<Role, std::vector<int>> own_micro_batches;
  const std::vector<int>& scored = config.reward_model.micro_batch_size_per_gpu;
  if (!scored.empty()) own_micro_batches[Role::kReward] = scored;
  return {.enabled = adaptation.enabled,
          .gamma = adaptation.gamma,
          .min_gain = adaptation.min_gain,
          .overlap = adaptation.transition == "overlapped",
          .monitor = {.length_threshold = adaptation.length_threshold,
                      .efficiency_threshold = adaptation.efficiency_threshold},
          .planner = {.headroom = adaptation.headroom,
                      .micro_batches = config.actor.ppo_micro_batch_size_per_gpu,
                      .own_micro_batches = std::move(own_micro_batches),
                      .allow_recompute = adaptation.allow_recompute,
                      .side_by_side = true}};
}

}  // namespace nereus
