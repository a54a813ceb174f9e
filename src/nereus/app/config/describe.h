// The one list of all options: reader, writer and reference page are visitors of it.
#pragma once

#include <string>

#include "nereus/app/config/config.h"

namespace nereus {

template <class V>
void describe_optim(OptimConfig& optim, const std::string& prefix, V& visit) {
  visit(prefix + "lr", optim.lr, "Peak learning rate of AdamW.");
  visit(prefix + "betas", optim.betas, "Decay rates of the two moments.");
  visit(prefix + "eps", optim.eps, "Added to the denominator.");
  visit(prefix + "weight_decay", optim.weight_decay, "Decoupled weight decay.");
  visit(prefix + "lr_warmup_steps", optim.lr_warmup_steps,
        "Steps of linear warm-up, which begins at 0; 0 or less: as lr_warmup_steps_ratio says.");
  visit(prefix + "lr_warmup_steps_ratio", optim.lr_warmup_steps_ratio,
        "The same as a share of trainer.total_training_steps.");
  visit(prefix + "lr_scheduler_type", optim.lr_scheduler_type, "constant, linear or cosine.");
  visit(prefix + "min_lr_ratio", optim.min_lr_ratio, "Where the decay ends, as a share of lr.");
}

template <class V>
void describe_data(DataConfig& data, V& visit) {
  visit("data.train_files", data.train_files,
        "Prompts, one JSON object a line: verl's schema, {\"prompt\", \"answer\"} or "
        "{\"prompt_ids\"}.");
  visit("data.val_files", data.val_files,
        "Prompts of the validation, in the same form; none, and no validation, if not given.");
  visit("data.prompt_key", data.prompt_key,
        "The key that holds the prompt: a text, which is taken as it is, or a list of {\"role\", "
        "\"content\"}, which the tokenizer's chat template writes.");
  visit("data.tokenizer", data.tokenizer, "Directory of the tokenizer; the actor's if not given.");
  visit("data.max_prompt_length", data.max_prompt_length, "Longest prompt, in tokens.");
  visit("data.max_response_length", data.max_response_length,
        "Longest response, in tokens; a schedule for a curriculum.");
  visit("data.train_batch_size", data.train_batch_size, "Prompts per step.");
  visit("data.filter_overlong_prompts", data.filter_overlong_prompts,
        "Drop (and count) prompts that are too long instead of refusing to start.");
  visit("data.shuffle", data.shuffle, "Draw prompts in a random order, another one each epoch.");
}

template <class V>
void describe_actor(Config& config, V& visit) {
  const std::string top = "actor_rollout_ref.";
  visit(top + "model.path", config.model.path,
        "Hugging Face directory of the actor; the reference is the same, frozen.");
  visit(top + "model.random_weights", config.model.random_weights,
        "Use only its config.json and draw the weights from the seed.");
  visit(top + "model.dtype", config.dtype,
        "float32, bfloat16 (which keeps an fp32 master copy) or float64; weights of another type "
        "are converted when they are read. float16 is refused: its gradients would underflow.");
  ActorConfig& actor = config.actor;
  describe_optim(actor.optim, top + "actor.optim.", visit);
  visit(top + "actor.ppo_mini_batch_size", actor.ppo_mini_batch_size,
        "Prompts per optimizer step (times rollout.n sequences).");
  visit(top + "actor.ppo_micro_batch_size_per_gpu", actor.ppo_micro_batch_size_per_gpu,
        "Sequences per micro-batch; a list of allowed ones; empty: the planner chooses.");
  visit(top + "actor.ppo_epochs", actor.ppo_epochs, "Passes over each batch.");
  visit(top + "actor.calculate_old_log_prob", actor.calculate_old_log_prob,
        "auto: where a batch sees one optimizer step and the KL is not in the reward, the old "
        "log-probabilities are those of the update's own forward pass. always: a pass of their "
        "own.");
  visit(top + "actor.clip_ratio", actor.clip_ratio, "Clips the probability ratio to 1 ± this.");
  visit(top + "actor.clip_ratio_low", actor.clip_ratio_low, "Lower side alone; else clip_ratio.");
  visit(top + "actor.clip_ratio_high", actor.clip_ratio_high, "Upper side alone; else clip_ratio.");
  visit(top + "actor.clip_ratio_c", actor.clip_ratio_c,
        "Dual clip: bounds the loss of negative advantages; 0: off.");
  visit(top + "actor.entropy_coeff", actor.entropy_coeff, "Weight of the entropy bonus.");
  visit(top + "actor.use_kl_loss", actor.use_kl_loss, "Add the KL to the reference to the loss.");
  visit(top + "actor.kl_loss_coef", actor.kl_loss_coef, "Its weight.");
  visit(top + "actor.kl_loss_type", actor.kl_loss_type, "low_var_kl (k3), mse (k2) or abs.");
  visit(top + "actor.loss_agg_mode", actor.loss_agg_mode,
        "token-mean, token-sum, seq-mean-token-sum, seq-mean-token-mean or "
        "seq-mean-token-sum-norm.");
  visit(top + "actor.grad_clip", actor.grad_clip, "Largest global gradient norm; 0: off.");
  RolloutConfig& rollout = config.rollout;
  visit(top + "rollout.n", rollout.n, "Responses per prompt.");
  visit(top + "rollout.temperature", rollout.temperature, "Logits are divided by it.");
  visit(top + "rollout.top_k", rollout.top_k, "Draw from the k likeliest tokens; -1: off.");
  visit(top + "rollout.top_p", rollout.top_p,
        "Draw from the likeliest tokens of this mass; 1: off.");
  visit(top + "rollout.do_sample", rollout.do_sample, "false: always the likeliest token.");
  visit(top + "rollout.ignore_eos", rollout.ignore_eos, "Generate up to the limit regardless.");
  ValKwargsConfig& validation = rollout.val_kwargs;
  visit(top + "rollout.val_kwargs.n", validation.n, "In validations: responses per prompt.");
  visit(top + "rollout.val_kwargs.do_sample", validation.do_sample,
        "false: always the likeliest token; true needs a temperature.");
  visit(top + "rollout.val_kwargs.temperature", validation.temperature, "If sampling.");
  visit(top + "rollout.val_kwargs.top_k", validation.top_k, "If sampling; -1: off.");
  visit(top + "rollout.val_kwargs.top_p", validation.top_p, "If sampling; 1: off.");
}

template <class V>
void describe_critic(CriticConfig& critic, V& visit) {
  visit("critic.model.path", critic.model.path,
        "Directory of the critic's body (gae only); a missing value head starts at 0.");
  visit("critic.model.random_weights", critic.model.random_weights, "As for the actor.");
  describe_optim(critic.optim, "critic.optim.", visit);
  visit("critic.cliprange_value", critic.cliprange_value, "Clips the change of the value.");
  visit("critic.grad_clip", critic.grad_clip, "Largest global gradient norm; 0: off.");
}

template <class V>
void describe_algorithm(AlgorithmConfig& algorithm, V& visit) {
  visit("algorithm.adv_estimator", algorithm.adv_estimator,
        "gae (PPO), or without a critic: grpo, rloo, reinforce_plus_plus, "
        "reinforce_plus_plus_baseline or remax.");
  visit("algorithm.norm_adv_by_std_in_grpo", algorithm.norm_adv_by_std_in_grpo,
        "Divide by the standard deviation of a prompt's rewards; false: Dr. GRPO.");
  visit("algorithm.gamma", algorithm.gamma, "Discount per token (gae and reinforce_plus_plus).");
  visit("algorithm.lam", algorithm.lam, "GAE's lambda.");
  visit("algorithm.use_kl_in_reward", algorithm.use_kl_in_reward,
        "Subtract the KL to the reference from the reward, token by token.");
  visit("algorithm.kl_penalty", algorithm.kl_penalty, "kl (k1), abs, mse (k2) or low_var_kl (k3).");
  visit("algorithm.kl_ctrl.type", algorithm.kl_ctrl.type, "fixed or adaptive.");
  visit("algorithm.kl_ctrl.kl_coef", algorithm.kl_ctrl.kl_coef, "Its (first) weight.");
  visit("algorithm.kl_ctrl.target_kl", algorithm.kl_ctrl.target_kl, "What adaptive steers to.");
  visit("algorithm.kl_ctrl.horizon", algorithm.kl_ctrl.horizon, "How slowly, in sequences.");
}

template <class V>
void describe_reward(RewardConfig& reward, V& visit) {
  visit("reward.name", reward.name,
        "vader_sentiment, digit_completion, last_number (is it the answer?) or response_length.");
  visit("reward.lexicon", reward.lexicon, "vader_sentiment: the lexicon file.");
  visit("reward.sign", reward.sign,
        "vader_sentiment: 1 rewards positive text, -1 negative; response_length: long, short.");
  visit("reward.max_failures", reward.max_failures,
        "Stop if a larger share of a step's samples cannot be scored.");
  visit("reward.unscored", reward.unscored,
        "What becomes of a sample that cannot be scored: exclude leaves it out of its group, of "
        "the loss and of the metrics, zero counts it as scored with 0, stop ends the run.");
  visit("reward.workers", reward.workers,
        "Processes in which a custom_reward_function is called, at most; more are quicker if it "
        "waits, for a judge or a sandbox; 0: one per core, but 8 to 32.");
  visit("reward.timeout", reward.timeout,
        "Seconds for a call of it; one that takes longer is a failure, and its process is "
        "replaced. Loading the file may take ten times as long.");
  visit("reward.memory", reward.memory,
        "Memory of such a process, with all that it starts; one that takes more is replaced; 0: "
        "no limit.");
  visit("custom_reward_function.path", reward.custom_path,
        "A Python file with the reward, instead of reward.name.");
  visit(
      "custom_reward_function.name", reward.custom_name,
      "Its function(data_source, solution_str, ground_truth, extra_info), as verl's: a number, or "
      "a dict with \"score\" and metrics.");
}

template <class V>
void describe_reward_model(RewardModelConfig& reward_model, V& visit) {
  visit("reward_model.enable", reward_model.enable,
        "Responses are scored by a model, instead of reward.name.");
  visit("reward_model.model.path", reward_model.model.path,
        "Directory of a …ForSequenceClassification with one label; its score is read at the last "
        "token of prompt and response. It shares the actor's tokenizer.");
  visit("reward_model.model.random_weights", reward_model.model.random_weights,
        "As for the actor.");
  visit("reward_model.micro_batch_size_per_gpu", reward_model.micro_batch_size_per_gpu,
        "Sequences per micro-batch; a list of allowed ones; empty: as for the actor.");
}

template <class V>
void describe_trainer(TrainerConfig& trainer, V& visit) {
  visit("trainer.total_training_steps", trainer.total_training_steps, "RL steps to run.");
  visit("trainer.save_freq", trainer.save_freq,
        "Checkpoint every so many steps and at the end; -1: at the end; 0: only when the run is "
        "stopped or fails.");
  visit("trainer.save_minutes", trainer.save_minutes,
        "Checkpoint also when so many minutes have passed since the last one, unless save_freq is "
        "0; 0: not by time.");
  visit("trainer.test_freq", trainer.test_freq,
        "Validate every so many steps and after the last one; -1: never.");
  visit("trainer.val_before_train", trainer.val_before_train,
        "Validate before the first step too, if there are data.val_files.");
  visit("trainer.seed", trainer.seed, "Weights, data order and sampling follow from it.");
  visit("trainer.project_name", trainer.project_name, "Names the run directory's parent.");
  visit("trainer.experiment_name", trainer.experiment_name,
        "Names the run directory; the config file's name if not given.");
  visit("trainer.default_local_dir", trainer.default_local_dir,
        "The run directory; runs/PROJECT/EXPERIMENT if not given.");
  visit("trainer.rollout_data_dir", trainer.rollout_data_dir,
        "Where every step's responses are kept, with their scores: STEP.jsonl; empty: nowhere.");
  visit("trainer.resume_mode", trainer.resume_mode,
        "disable: start anew; auto: go on from the run directory's newest checkpoint, if any.");
  visit("trainer.max_actor_ckpt_to_keep", trainer.max_actor_ckpt_to_keep,
        "Checkpoints to keep; 0: all.");
  visit("trainer.logger", trainer.logger, "Any of console, tensorboard.");
}

template <class V>
void describe_cluster(ClusterConfig& cluster, V& visit) {
  visit(
      "cluster.device", cluster.device,
      "cpu (virtual devices, one thread each), cuda (all GPUs), cuda:0,1 (these; 0,0: two virtual "
      "devices share one), or auto: cuda if a GPU is there, else cpu.");
  visit("cluster.devices", cluster.devices, "Devices per host; 0: all GPUs, or one for cpu.");
  visit("cluster.memory_per_device", cluster.memory_per_device,
        "What a plan may use of each, enforced; required for cpu.");
  visit("cluster.cores", cluster.cores, "Cores that virtual devices share; 0: as found.");
  visit("cluster.hosts", cluster.hosts, "Hosts. `nereus plan` takes any number, training one.");
  visit("cluster.host_memory", cluster.host_memory,
        "Memory of a host in which a transition may park state; 0: as much as its devices have.");
  visit("cluster.link_bandwidth", cluster.link_bandwidth,
        "Bytes a second between virtual devices, as over a slow network; 0: full speed.");
}

template <class V>
void describe_adaptation(AdaptationConfig& adaptation, V& visit) {
  visit("adaptation.enabled", adaptation.enabled,
        "false: change the plan only if it no longer fits or a device has gone.");
  visit("adaptation.gamma", adaptation.gamma,
        "Payback: a transition may cost gamma times what it gains until the next change.");
  visit("adaptation.length_threshold", adaptation.length_threshold,
        "Relative drift of the response length that asks for a new plan.");
  visit("adaptation.efficiency_threshold", adaptation.efficiency_threshold,
        "The same for the step time at equal work.");
  visit("adaptation.min_gain", adaptation.min_gain,
        "A smaller relative gain is noise, and no reason to move.");
  visit(
      "adaptation.headroom", adaptation.headroom,
      "Share of device memory a plan leaves free when it is chosen. The plan in force may use half "
      "of that before another is looked for.");
  visit("adaptation.allow_recompute", adaptation.allow_recompute,
        "Plans may trade time for activation memory.");
  visit("adaptation.verify", adaptation.verify,
        "Prove with hashes that a transition changed no bit of the training state.");
  visit("adaptation.transition", adaptation.transition,
        "boundary: between steps; overlapped: beside the next step's generation where that fits.");
}

// Calls visit(key, field, meaning) for every option, in the order of the reference page.
template <class V>
void describe(Config& config, V& visit) {
  describe_data(config.data, visit);
  describe_actor(config, visit);
  describe_critic(config.critic, visit);
  describe_algorithm(config.algorithm, visit);
  describe_reward(config.reward, visit);
  describe_reward_model(config.reward_model, visit);
  describe_trainer(config.trainer, visit);
  describe_cluster(config.cluster, visit);
  visit("supply", config.supply, "Devices there over the steps; all, always, if not given.");
  visit("plan", config.plan, "The plan to start with; the planner chooses if not given.");
  describe_adaptation(config.adaptation, visit);
}

}  // namespace nereus
