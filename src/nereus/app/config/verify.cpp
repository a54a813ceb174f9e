#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "nereus/app/config/config.h"
#include "nereus/app/config/values.h"
#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"
#include "nereus/core/cluster/limits.h"
#include "nereus/core/model/model_spec.h"
#include "nereus/core/plan/model_stage.h"
#include "nereus/core/workflow/objective.h"

namespace nereus {

namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidInput, message);
}

// Throws unless `fine`: "key = value: must be …".
void require_that(bool fine, const std::string& key, double value, const std::string& must_be) {
  if (!fine) refuse(key + " = " + shortest(value) + ": must be " + must_be);
}

void at_least(double least, const std::string& key, double value) {
  require_that(value >= least && std::isfinite(value), key, value, shortest(least) + " or more");
}

void positive(const std::string& key, double value) {
  require_that(value > 0 && std::isfinite(value), key, value, "more than 0");
}

void between(int64_t least, int64_t most, const std::string& key, int64_t value) {
  if (value >= least && value <= most) return;
  refuse(key + " = " + std::to_string(value) + ": must be " + std::to_string(least) +
         " or more, up to " + std::to_string(most));
}

// Neither a count nor the product of two overflows below these, nor the bytes they stand for.
constexpr int64_t kMostTokens = int64_t{1} << 24U;  // of a prompt or response
constexpr int64_t kMostSamples = int64_t{1} << 20U;
constexpr int64_t kMostStepTokens = int64_t{1} << 40U;
constexpr int64_t kMostEpochs = 1000;
constexpr int64_t kMostBytes = int64_t{1} << 48U;
constexpr int64_t kMostCounted = int64_t{1} << 53U;

void share(const std::string& key, double value) {
  require_that(value >= 0 && value <= 1, key, value, "between 0 and 1");
}

void one_of(const std::string& key, const std::string& value,
            const std::vector<std::string>& legal) {
  if (std::find(legal.begin(), legal.end(), value) != legal.end()) return;
  refuse(key + " = \"" + value + "\": must be " + join(legal, ", "));
}

// Calls parse(), adding the key to what it throws.
template <class Parse>
void parsed(const std::string& key, Parse parse) {
  try {
    parse();
  } catch (const Error& error) {
    refuse(key + ": " + error.what());
  }
}

void schedule(const std::string& key, const StepSchedule& schedule, int64_t least, int64_t most) {
  int last = -1;
  for (const auto& [step, value] : schedule.entries) {
    if (last < 0 && step != 0)
      refuse(key + ": the first entry must be for step 0, not " + std::to_string(step));
    if (step <= last) {
      refuse(key + ": steps must increase, but " + std::to_string(step) + " follows " +
             std::to_string(last));
    }
    between(least, most, key + " at step " + std::to_string(step), value);
    last = step;
  }
}

void given(const std::string& key, bool is_given) {
  if (!is_given) refuse(key + " is missing");
}

void verify_optim(const std::string& prefix, const OptimConfig& optim) {
  // AdamW divides it by 1 - beta1 in single precision.
  constexpr double kMostLr = 3e37;
  require_that(optim.lr > 0 && optim.lr <= kMostLr, prefix + "lr", optim.lr,
               "more than 0, up to " + shortest(kMostLr));
  if (optim.betas.size() != 2) {
    refuse(prefix + "betas: needs two numbers, not " + std::to_string(optim.betas.size()));
  }
  for (double beta : optim.betas) {
    require_that(beta >= 0 && beta < 1, prefix + "betas", beta, "at least 0 and below 1");
  }
  positive(prefix + "eps", optim.eps);
  at_least(0, prefix + "weight_decay", optim.weight_decay);
  between(-1, kMostCounted, prefix + "lr_warmup_steps", optim.lr_warmup_steps);
  share(prefix + "lr_warmup_steps_ratio", optim.lr_warmup_steps_ratio);
  one_of(prefix + "lr_scheduler_type", optim.lr_scheduler_type, {"constant", "linear", "cosine"});
  share(prefix + "min_lr_ratio", optim.min_lr_ratio);
}

void verify_data(const DataConfig& data) {
  given("data.train_files", !data.train_files.empty());
  between(1, kMostTokens, "data.max_prompt_length", data.max_prompt_length);
  between(1, kMostSamples, "data.train_batch_size", data.train_batch_size);
  given("data.max_response_length", !data.max_response_length.entries.empty());
  schedule("data.max_response_length", data.max_response_length, 1, kMostTokens);
}

// Of a whole step.
void verify_step_size(const Config& config) {
  const int64_t samples = config.data.train_batch_size * config.rollout.n;
  between(1, kMostSamples, "data.train_batch_size × actor_rollout_ref.rollout.n", samples);
  int64_t longest = 0;
  for (const auto& [step, limit] : config.data.max_response_length.entries) {
    longest = std::max(longest, limit);
  }
  between(1, kMostStepTokens,
          "data.train_batch_size × actor_rollout_ref.rollout.n × (data.max_prompt_length + "
          "data.max_response_length)",
          samples * (config.data.max_prompt_length + longest));
}

void verify_actor(const Config& config) {
  const std::string top = "actor_rollout_ref.";
  given(top + "model.path", !config.model.path.empty());
  parsed(top + "model.dtype", [&] {
    // Gradients of a mean over thousands of tokens are below its smallest numbers.
    if (parse_dtype(config.dtype) == DType::kFloat16) {
      refuse(
          "float16 cannot be trained in, as its gradients would underflow: use bfloat16, or "
          "float32; the weights of a float16 model are converted when they are read");
    }
  });
  const ActorConfig& actor = config.actor;
  verify_optim(top + "actor.optim.", actor.optim);
  between(1, kMostSamples, top + "actor.ppo_mini_batch_size", actor.ppo_mini_batch_size);
  if (actor.ppo_mini_batch_size > config.data.train_batch_size) {
    refuse(top + "actor.ppo_mini_batch_size = " + std::to_string(actor.ppo_mini_batch_size) +
           " is larger than data.train_batch_size = " +
           std::to_string(config.data.train_batch_size) + ": a mini-batch is a part of the batch");
  }
  for (int size : actor.ppo_micro_batch_size_per_gpu) {
    between(1, kMostSamples, top + "actor.ppo_micro_batch_size_per_gpu", size);
  }
  between(1, kMostEpochs, top + "actor.ppo_epochs", actor.ppo_epochs);
  one_of(top + "actor.calculate_old_log_prob", actor.calculate_old_log_prob, {"auto", "always"});
  positive(top + "actor.clip_ratio", actor.clip_ratio);
  require_that(actor.clip_ratio_c == 0 || actor.clip_ratio_c > 1, top + "actor.clip_ratio_c",
               actor.clip_ratio_c, "more than 1, or 0 (off)");
  at_least(0, top + "actor.kl_loss_coef", actor.kl_loss_coef);
  at_least(0, top + "actor.grad_clip", actor.grad_clip);
  parsed(top + "actor.loss_agg_mode", [&] { parse_loss_aggregation(actor.loss_agg_mode); });
  parsed(top + "actor.kl_loss_type", [&] {
    if (parse_kl_estimator(actor.kl_loss_type) == KlEstimator::kK1 && actor.use_kl_loss) {
      refuse(
          "k1 as a loss does not pull towards the reference (its gradient is 0 on average): use "
          "low_var_kl");
    }
  });
}

// What RolloutConfig and ValKwargsConfig have in common.
template <class Sampling>
void verify_sampling(const std::string& prefix, const Sampling& sampling) {
  between(1, kMostSamples, prefix + "n", sampling.n);
  require_that(sampling.top_p > 0 && sampling.top_p <= 1, prefix + "top_p", sampling.top_p,
               "more than 0 and at most 1");
  require_that(sampling.top_k == -1 || sampling.top_k >= 1, prefix + "top_k",
               static_cast<double>(sampling.top_k), "1 or more, or -1 (off)");
}

void verify_rollout(const RolloutConfig& rollout) {
  const std::string prefix = "actor_rollout_ref.rollout.";
  verify_sampling(prefix, rollout);
  positive(prefix + "temperature", rollout.temperature);
  const ValKwargsConfig& validation = rollout.val_kwargs;
  verify_sampling(prefix + "val_kwargs.", validation);
  if (validation.do_sample) positive(prefix + "val_kwargs.temperature", validation.temperature);
}

void verify_algorithm(const AlgorithmConfig& algorithm) {
  parsed("algorithm.adv_estimator", [&] { parse_advantage_estimator(algorithm.adv_estimator); });
  share("algorithm.gamma", algorithm.gamma);
  share("algorithm.lam", algorithm.lam);
  parsed("algorithm.kl_penalty", [&] { parse_kl_estimator(algorithm.kl_penalty); });
  one_of("algorithm.kl_ctrl.type", algorithm.kl_ctrl.type, {"fixed", "adaptive"});
  at_least(0, "algorithm.kl_ctrl.kl_coef", algorithm.kl_ctrl.kl_coef);
  positive("algorithm.kl_ctrl.target_kl", algorithm.kl_ctrl.target_kl);
  positive("algorithm.kl_ctrl.horizon", algorithm.kl_ctrl.horizon);
}

// What scores responses: exactly one of three.
void verify_reward(const Config& config) {
  const RewardConfig& reward = config.reward;
  std::vector<std::string> chosen;
  if (!reward.name.empty()) chosen.push_back("reward.name = " + reward.name);
  if (!reward.custom_path.empty()) {
    chosen.push_back("custom_reward_function.path = " + reward.custom_path.string());
  }
  if (config.reward_model.enable) chosen.emplace_back("reward_model.enable = true");
  given("reward.name, custom_reward_function.path or reward_model.enable", !chosen.empty());
  if (chosen.size() > 1) refuse(join(chosen, " beside ") + ": give one of them");
  given("reward_model.model.path",
        !config.reward_model.enable || !config.reward_model.model.path.empty());
  for (int size : config.reward_model.micro_batch_size_per_gpu) {
    between(1, kMostSamples, "reward_model.micro_batch_size_per_gpu", size);
  }
  require_that(reward.sign == 1 || reward.sign == -1, "reward.sign", reward.sign, "1 or -1");
  share("reward.max_failures", reward.max_failures);
  one_of("reward.unscored", reward.unscored, {"exclude", "zero", "stop"});
  at_least(0, "reward.workers", reward.workers);
  require_that(reward.timeout > 0 && std::isfinite(reward.timeout), "reward.timeout",
               reward.timeout, "a number of seconds");
  require_that(reward.memory.count() >= 0, "reward.memory", reward.memory.count(),
               "a size, or 0 for no limit");
}

void verify_trainer(const TrainerConfig& trainer, bool has_validation) {
  at_least(1, "trainer.total_training_steps", trainer.total_training_steps);
  require_that(trainer.save_freq >= -1, "trainer.save_freq", trainer.save_freq,
               "1 or more, -1 (only at the end) or 0 (only when the run is stopped)");
  at_least(0, "trainer.save_minutes", trainer.save_minutes);
  require_that(trainer.test_freq == -1 || trainer.test_freq >= 1, "trainer.test_freq",
               trainer.test_freq, "1 or more, or -1 (never)");
  if (trainer.test_freq > 0 && !has_validation) {
    refuse("trainer.test_freq = " + std::to_string(trainer.test_freq) +
           ", but there are no data.val_files to validate with: give them, or -1");
  }
  at_least(0, "trainer.seed", static_cast<double>(trainer.seed));
  at_least(0, "trainer.max_actor_ckpt_to_keep", trainer.max_actor_ckpt_to_keep);
  one_of("trainer.resume_mode", trainer.resume_mode, {"disable", "auto"});
  for (const std::string& logger : trainer.logger) {
    one_of("trainer.logger", logger, {"console", "tensorboard"});
  }
}

void verify_cluster(const Config& config) {
  const ClusterConfig& cluster = config.cluster;
  between(0, kMostDevices, "cluster.devices", cluster.devices);
  between(1, kMostDevices, "cluster.hosts", cluster.hosts);
  between(0, kMostDevices, "cluster.cores", cluster.cores);
  between(0, kMostDevices, "cluster.devices × cluster.hosts",
          int64_t{cluster.devices} * cluster.hosts);
  between(0, kMostBytes, "cluster.memory_per_device", cluster.memory_per_device.count());
  between(0, kMostBytes, "cluster.host_memory", cluster.host_memory.count());
  between(0, kMostBytes, "cluster.link_bandwidth", cluster.link_bandwidth.count());
  schedule("supply", config.supply.counts, 0, kMostDevices);
}

void verify_plan(const PlanSetting& plan) {
  for (const auto& [name, stage] : plan.stages) {
    if (name != "all") {
      const std::vector<std::string> parts = split(name, '/');
      if (parts.size() != 2) {
        refuse("plan: " + shown(name) + " is no model-stage: write all, or e.g. actor/training");
      }
      parsed("plan." + name, [&] { parse_role(parts[0]), parse_stage(parts[1]); });
    }
    const std::string prefix = "plan." + name + ".";
    between(1, kMostDevices, prefix + "tp", stage.tp);
    between(1, kMostDevices, prefix + "pp", stage.pp);
    between(1, kMostDevices, prefix + "dp", stage.dp);
    between(1, kMostDevices, prefix + "tp × pp × dp", int64_t{stage.tp} * stage.pp * stage.dp);
    between(0, kMostSamples, prefix + "micro_batch", stage.micro_batch);
    between(1, kMostSamples, prefix + "waves", stage.waves);
  }
}

}  // namespace

void verify(const Config& config) {
  verify_data(config.data);
  verify_actor(config);
  verify_rollout(config.rollout);
  verify_step_size(config);
  given("critic.model.path",
        config.algorithm.adv_estimator != "gae" || !config.critic.model.path.empty());
  verify_optim("critic.optim.", config.critic.optim);
  positive("critic.cliprange_value", config.critic.cliprange_value);
  at_least(0, "critic.grad_clip", config.critic.grad_clip);
  verify_algorithm(config.algorithm);
  verify_reward(config);
  verify_trainer(config.trainer, !config.data.val_files.empty());
  verify_cluster(config);
  verify_plan(config.plan);
  one_of("adaptation.transition", config.adaptation.transition, {"boundary", "overlapped"});
  at_least(0, "adaptation.gamma", config.adaptation.gamma);
  positive("adaptation.length_threshold", config.adaptation.length_threshold);
  positive("adaptation.efficiency_threshold", config.adaptation.efficiency_threshold);
  share("adaptation.min_gain", config.adaptation.min_gain);
  require_that(config.adaptation.headroom >= 0 && config.adaptation.headroom < 1,
               "adaptation.headroom", config.adaptation.headroom, "at least 0 and below 1");
}

}  // namespace nereus
