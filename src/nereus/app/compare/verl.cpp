#include <string>
#include <utility>

#include "nereus/app/compare/foreign_reader.h"

namespace nereus {

namespace {

const IgnoreRule kRules[] = {
    {kOfConfig,
     {"algorithm.", "custom_reward_function.", "reward.", "*.kl_", "*.use_kl_", "*.policy_loss.",
      "*.model.path", "*.model.tokenizer_path", "*.model.trust_remote_code", "*.dtype"}},
    {kOfConfig,
     {"reward_model.reward_manager", "reward_model.reward_kwargs", "reward_model.max_length",
      "reward_model.model.input_tokenizer", "reward_model.num_examine"}},
    {"rewards of a function count as host work",
     {"reward_model.launch_reward_fn_async", "reward_model.sandbox_fusion."}},
    {"the reward model scores by a forward pass", {"reward_model.rollout."}},
    {kNoEffect,
     {"*.optim.",
      "*.checkpoint.",
      "*.profiler.",
      "global_profiler.",
      "*clip",
      "*entropy",
      "*.loss_agg_mode",
      "*_warmup",
      "*.shuffle",
      "*.load_weight",
      "*nccl_timeout",
      "*seed",
      "*._target_",
      "data.train_files",
      "data.val_",
      "data.prompt_key",
      "data.reward_fn_key",
      "data.filter_",
      "data.truncation",
      "data.image_key",
      "data.return_",
      "data.tokenizer",
      "data.custom_cls",
      "*.temperature",
      "*.top_",
      "*.do_sample",
      "*.val_kwargs.",
      "*.calculate_log_probs",
      "*.load_format",
      "*.max_model_len",
      "trainer.logger",
      "trainer.project_name",
      "trainer.experiment_name",
      "trainer.save_freq",
      "trainer.test_freq",
      "trainer.total_",
      "trainer.val_",
      "trainer.balance_batch",
      "trainer.default_",
      "trainer.resume_",
      "trainer.log_",
      "trainer.max_",
      "trainer.device",
      "ray_"}},
    {kOfLauncher, {"--", "hydra."}},
    {kCacheFits, {"*gpu_memory_utilization"}},
    {"generation is predicted alike for all engines",
     {"*.rollout.name", "*.rollout.mode", "*.engine_kwargs.", "*.enforce_eager",
      "*.enable_chunked_prefill", "*.enable_prefix_caching", "*.multi_turn.", "*.agent."}},
    {"all sequences of a replica are decoded together", {"*.rollout.max_num_"}},
    {"replicas follow from the devices", {"*.rollout.data_parallel_size"}},
    {"runs with the micro-batch of training", {"*.rollout.log_prob_", "*.forward_m"}},
    {"as the actor's",
     {"critic.ppo_mini_batch_size", "critic.ppo_epochs", "critic.strategy", "*.ref.strategy",
      "reward_model.strategy", "critic.use_dynamic_bsz", "*.ref.log_prob_use_dynamic_bsz",
      "reward_model.use_dynamic_bsz"}},
    {"dynamic batches are off", {"*max_token_len_per_gpu"}},
    {"dynamic batches are on", {"*micro_batch_size"}},
    {kNotModelled,
     {"*torch_compile", "*use_fused_kernels", "*use_liger", "*use_shm", "*forward_prefetch",
      "*wrap_policy", "*reshard_after_forward", "*mbridge", "*.override_transformer_config.",
      "*.override_ddp_config.", "*dist_checkpointing"}},
    {"sequences are predicted without padding", {"*use_remove_padding"}},
};

ForeignMicroBatch micro_batch(ForeignReader& reader, const std::string& prefix, bool dynamic,
                              const std::string& tokens) {
  if (dynamic) return {.tokens = reader.number(prefix + tokens)};
  return {.per_rank = reader.number(prefix + "micro_batch_size_per_gpu"),
          .of_all = reader.number(prefix + "micro_batch_size")};
}

ForeignStage megatron(ForeignReader& reader, const std::string& prefix) {
  reader.require_one(prefix + "context_parallel_size", kNoContextParallelism);
  reader.require_one(prefix + "expert_model_parallel_size", kNoExpertParallelism);
  const auto offload = [&](const char* what) {
    return reader.flag(prefix + what + "_offload", false);
  };
  const bool params = offload("param"), gradients = offload("grad"),
             optimizer = offload("optimizer");
  ForeignStage stage{.tp = reader.number(prefix + "tensor_model_parallel_size", 1),
                     .pp = reader.number(prefix + "pipeline_model_parallel_size", 1),
                     .offload = params || gradients || optimizer};
  const std::string recompute = prefix + "override_transformer_config.recompute_granularity";
  stage.recompute = reader.text(recompute).value_or("") == "full";
  if (!stage.recompute && reader.text(recompute)) {
    reader.approximate(recompute, "selective recomputation counts as none");
  }
  return stage;
}

ForeignStage fsdp(ForeignReader& reader, const std::string& prefix) {
  reader.require_one(prefix + "ulysses_sequence_parallel_size", kNoContextParallelism);
  // Below the model for critic and reward model.
  const bool is_actors = prefix.starts_with("actor_rollout_ref.");
  const std::string config = prefix + (is_actors ? "fsdp_config." : "model.fsdp_config.");
  const bool params = reader.flag(config + "param_offload", false);
  const bool optimizer = reader.flag(config + "optimizer_offload", false);
  reader.approximate("strategy = fsdp", kShardedWeights);
  if (params != optimizer) {
    reader.approximate(config + (params ? "param_offload" : "optimizer_offload"),
                       "weights and optimizer state wait in host memory together");
  }
  const std::string size = config + "fsdp_size";
  const bool all = reader.text(size).value_or("-1") == "-1";
  return {.shards = all ? 0 : reader.number(size, 1), .offload = params || optimizer};
}

// With the actor's devices, or in a pool of its own behind them.
void add_reward_model(ForeignReader& reader, ForeignStage stage, bool dynamic,
                      ForeignSetting& setting) {
  const std::string prefix = "reward_model.";
  const bool enabled = reader.flag(prefix + "enable", false);
  if (enabled) {
    reader.approximate(prefix + "enable",
                       "predicted if the config has a reward model (reward_model.enable=true)");
  }
  stage.shards = 1;
  stage.recompute = false;
  stage.micro_batch = micro_batch(reader, prefix, dynamic, "forward_max_token_len_per_gpu");
  if (dynamic) stage.micro_batch.tokens = stage.micro_batch.tokens.value_or(32768);
  const bool own_pool = reader.flag(prefix + "enable_resource_pool", false);
  const int devices =
      reader.number(prefix + "nnodes", 1) * reader.number(prefix + "n_gpus_per_node", 8);
  if (enabled && own_pool) {
    setting.groups.push_back(devices);
    stage.group = setting.groups.size() - 1;
  }
  setting.stages[kRewardInference] = stage;
}

}  // namespace

ForeignSetting translate_verl(ForeignKeys keys) {
  ForeignReader reader(std::move(keys));
  const std::string top = "actor_rollout_ref.", actor = top + "actor.", rollout = top + "rollout.";
  const std::string strategy =
      reader.text(actor + "strategy")
          .value_or(reader.has_section(actor + "megatron.") ? "megatron" : "fsdp");
  const bool is_megatron = strategy == "megatron";
  const bool dynamic = reader.flag(actor + "use_dynamic_bsz", false);
  const auto cut = [&](const std::string& prefix) {
    return is_megatron ? megatron(reader, prefix + "megatron.") : fsdp(reader, prefix);
  };

  ForeignSetting setting;
  setting.groups = {reader.number("trainer.nnodes", 1) *
                    reader.number("trainer.n_gpus_per_node", 8)};
  ForeignStage train = cut(actor);
  ForeignStage critic = cut("critic.");
  ForeignStage reference = cut(top + "ref.");
  reference.shards = 1;
  reference.recompute = false;
  if (is_megatron) {
    const bool sharded = reader.flag(actor + "megatron.use_distributed_optimizer", true);
    train.shards = critic.shards = sharded ? 0 : 1;
    setting.execution.sequence_parallel = reader.flag(actor + "megatron.sequence_parallel", true);
    setting.execution.pipeline_chunks =
        reader.number(actor + "megatron.virtual_pipeline_model_parallel_size", 1);
    const std::string overlap = actor + "megatron.override_ddp_config.overlap_grad_reduce";
    setting.execution.gradient_overlap = reader.flag(overlap, false) ? 1 : 0;
  } else {
    const std::string checkpointing = "model.enable_gradient_checkpointing";
    train.recompute = reader.flag(top + checkpointing, true);
    critic.recompute = reader.flag("critic." + checkpointing, true);
    setting.execution.gradient_overlap = 1;
  }
  const std::string budget = "max_token_len_per_gpu";
  train.micro_batch = micro_batch(reader, actor + "ppo_", dynamic, budget);
  critic.micro_batch = micro_batch(reader, "critic.ppo_", dynamic, budget);
  reference.micro_batch = micro_batch(reader, top + "ref.log_prob_", dynamic, budget);
  if (dynamic) {
    reader.approximate(actor + "use_dynamic_bsz", kTokenBudget);
    // verl's defaults.
    train.micro_batch.tokens = train.micro_batch.tokens.value_or(16384);
    critic.micro_batch.tokens = critic.micro_batch.tokens.value_or(32768);
    reference.micro_batch.tokens = reference.micro_batch.tokens.value_or(*train.micro_batch.tokens);
  }
  setting.stages = {{kActorGeneration,
                     {.tp = reader.number(rollout + "tensor_model_parallel_size", 2),
                      .pp = reader.number(rollout + "pipeline_model_parallel_size", 1),
                      .offload = reader.flag(rollout + "free_cache_engine", true)}},
                    {kActorTraining, train},
                    {kCriticTraining, critic},
                    {kReferenceInference, reference}};
  add_reward_model(reader, cut("reward_model."), dynamic, setting);
  const auto estimator = reader.text("algorithm.adv_estimator");
  setting.job = {.critic = estimator ? std::optional(*estimator == "gae") : std::nullopt,
                 .prompts = reader.number("data.train_batch_size"),
                 .samples_per_prompt = reader.number(rollout + "n"),
                 .mini_batch_prompts = reader.number(actor + "ppo_mini_batch_size"),
                 .epochs = reader.number(actor + "ppo_epochs"),
                 .prompt_length = reader.number("data.max_prompt_length"),
                 .response_length = reader.number("data.max_response_length")};
  reader.finish(kRules, setting);
  return setting;
}

}  // namespace nereus
