#include "nereus/app/config/options.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "nereus/app/config/devices.h"
#include "nereus/core/base/error.h"

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

SupplySchedule supply_schedule(const SupplySetting& supply, const Cluster& cluster) {
  if (!supply.file.empty()) return read_supply_trace(cluster, supply.file);
  if (supply.counts.entries.empty()) return constant_supply(cluster);
  std::vector<std::pair<int, int>> counts;
  for (const auto& [step, count] : supply.counts.entries) {
    counts.emplace_back(step, static_cast<int>(count));
  }
  return supply_of_counts(cluster, counts);
}

PpoOptions ppo_options(const Config& config) {
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

ValidationOptions validation_options(const Config& config) {
  const ValKwargsConfig& sampling = config.rollout.val_kwargs;
  return {.file = config.data.val_files,
          .every = config.trainer.test_freq,
          .before_training = config.trainer.val_before_train,
          .samples_per_prompt = sampling.n,
          .sampling = {.temperature = sampling.temperature,
                       .top_k = sampling.top_k,
                       .top_p = sampling.top_p,
                       .greedy = !sampling.do_sample}};
}

Json reward_options(const RewardConfig& reward) {
  if (!reward.custom_path.empty()) {
    return {{"path", reward.custom_path.string()}, {"function", reward.custom_name}};
  }
  if (reward.name == "response_length") return {{"sign", reward.sign}};
  if (reward.name != "vader_sentiment") return Json::object();
  return {{"lexicon", reward.lexicon.string()}, {"sign", reward.sign}};
}

}  // namespace

Cluster to_cluster(const Config& config) { return to_cluster(config.cluster, cuda::gpus()); }

LiveOptions to_live_options(const Config& config) {
  if (config.cluster.hosts != 1) {
    throw Error(ErrorCode::kInvalidInput,
                "cluster.hosts = " + std::to_string(config.cluster.hosts) +
                    ": training runs on one host so far");
  }
  LiveOptions options;
  options.cluster = to_cluster(config);
  options.backend = host_devices(config.cluster, cuda::device_count()).backend;
  options.actor = {config.model.path, config.model.random_weights};
  if (algorithm(parse_advantage_estimator(config.algorithm.adv_estimator)).critic) {
    options.critic = {config.critic.model.path, config.critic.model.random_weights};
  }
  if (config.algorithm.use_kl_in_reward || config.actor.use_kl_loss) {
    options.reference = options.actor;
  }
  if (config.reward_model.enable) {
    options.reward_model = {config.reward_model.model.path,
                            config.reward_model.model.random_weights};
  }
  options.dtype = parse_dtype(config.dtype);
  options.data = {.train_file = config.data.train_files,
                  .prompt_key = config.data.prompt_key,
                  .tokenizer = config.data.tokenizer,
                  .train_batch_size = config.data.train_batch_size,
                  .samples_per_prompt = config.rollout.n,
                  .max_prompt_length = config.data.max_prompt_length,
                  .filter_overlong_prompts = config.data.filter_overlong_prompts,
                  .shuffle = config.data.shuffle};
  options.validation = validation_options(config);
  options.ppo = ppo_options(config);
  const int64_t steps = config.trainer.total_training_steps;
  options.actor_optimizer = optimizer_options(config.actor.optim, config.actor.grad_clip, steps);
  options.critic_optimizer = optimizer_options(config.critic.optim, config.critic.grad_clip, steps);
  options.sampling = {.temperature = config.rollout.temperature,
                      .top_k = config.rollout.top_k,
                      .top_p = config.rollout.top_p,
                      .greedy = !config.rollout.do_sample,
                      .seed = static_cast<uint64_t>(config.trainer.seed)};
  options.ignore_eos = config.rollout.ignore_eos;
  options.response_length = {config.data.max_response_length.entries};
  options.supply = supply_schedule(config.supply, options.cluster);
  options.reward = config.reward.custom_path.empty() ? config.reward.name : "python";
  options.reward_options = reward_options(config.reward);
  options.max_reward_failures = config.reward.unscored == "stop" ? 0 : config.reward.max_failures;
  options.exclude_unscored = config.reward.unscored != "zero";
  options.reward_workers = config.reward.workers;
  options.reward_timeout = Seconds(config.reward.timeout);
  options.reward_memory = config.reward.memory;
  options.total_steps = config.trainer.total_training_steps;
  options.seed = static_cast<uint64_t>(config.trainer.seed);
  options.failure_directory = run_directory(config);
  options.rollout_directory = config.trainer.rollout_data_dir;
  options.verify_transitions = config.adaptation.verify;
  options.link_bandwidth = static_cast<double>(config.cluster.link_bandwidth.count());
  return options;
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
