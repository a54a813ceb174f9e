#include <string>
#include <utility>

#include "nereus/app/compare/foreign_reader.h"
#include "nereus/core/base/error.h"

namespace nereus {

namespace {

const IgnoreRule kRules[] = {
    {kNoEffect,
     {"--ckpt.",
      "--logger.",
      "--eval.",
      "*adam.",
      "*muon.",
      "*lr_",
      "*max_norm",
      "*clip",
      "--l2",
      "*learning_rate",
      "*wandb",
      "*tensorboard",
      "*save_",
      "*_steps",
      "--load_checkpoint",
      "--data.prompt",
      "--data.input_",
      "--data.label_key",
      "--data.apply_chat_template",
      "--data.max_samples",
      "--prompt_",
      "--input_",
      "--label_key",
      "--apply_chat_template",
      "--max_samples",
      "--train.seed",
      "--seed",
      "--train.num_episodes",
      "--num_episodes",
      "--rollout.temperature",
      "--rollout.top_p",
      "--temperature",
      "--top_p",
      "--actor.entropy",
      "--flash_attn",
      "--use_wandb"}},
    {kOfConfig,
     {"--algo.", "--init_kl_coef", "--kl_", "--use_kl_", "--gamma", "--lambd",
      "--dynamic_filtering", "*.model_name_or_path", "--pretrain", "--reward_pretrain",
      "--critic_pretrain", "--ds.param_dtype", "--bf16"}},
    {"a reward model on devices is not predicted",
     {"--reward.", "--reward_num", "--remote_rm", "--normalize_reward",
      "--train.colocate_critic_reward"}},
    {kCacheFits, {"--vllm.gpu_memory_utilization", "--vllm_gpu_memory_utilization"}},
    {"generation is predicted alike for all engines",
     {"--vllm.sync_backend", "--vllm_sync_", "--vllm.enforce_eager", "--enforce_eager",
      "--vllm.enable_prefix_caching", "--enable_prefix_caching", "--vllm.distributed_executor",
      "--rollout.vllm_generate_batch_size", "--vllm_generate_batch_size"}},
    {"sequences are predicted without padding", {"*packing_samples"}},
    {"runs with the micro-batch of training", {"--rollout.max_tokens_per_gpu"}},
    {"dynamic batches are off", {"--train.max_tokens_per_gpu"}},
    {"dynamic batches are on", {"--train.micro_batch_size"}},
    {"all weights are trained", {"--ds.lora", "--lora_"}},
    {kNotModelled,
     {"*attn_implementation", "*liger", "*deepcompile", "--ds.zpg", "--zpg", "--train.async_queue",
      "--async_queue_size", "--train.partial_rollout"}},
    {kOfLauncher, {"--address", "--runtime-env-json", "--module"}},
};

// The flat names of older versions for the dotted ones of today, of the keys that matter.
const std::pair<const char*, const char*> kOldNames[] = {
    {"actor_num_nodes", "actor.num_nodes"},
    {"actor_num_gpus_per_node", "actor.num_gpus_per_node"},
    {"critic_num_nodes", "critic.num_nodes"},
    {"critic_num_gpus_per_node", "critic.num_gpus_per_node"},
    {"ref_num_nodes", "ref.num_nodes"},
    {"ref_num_gpus_per_node", "ref.num_gpus_per_node"},
    {"vllm_num_engines", "vllm.num_engines"},
    {"vllm_tensor_parallel_size", "vllm.tensor_parallel_size"},
    {"vllm_enable_sleep", "vllm.enable_sleep"},
    {"deepspeed_enable_sleep", "ds.enable_sleep"},
    {"zero_stage", "ds.zero_stage"},
    {"ds_tensor_parallel_size", "ds.tensor_parallel_size"},
    {"ring_attn_size", "ds.ring_attn_size"},
    {"adam_offload", "ds.adam_offload"},
    {"overlap_comm", "ds.overlap_comm"},
    {"ref_reward_offload", "ref.offload"},
    {"gradient_checkpointing", "actor.gradient_checkpointing_enable"},
    {"colocate_all_models", "train.colocate_all"},
    {"colocate_actor_ref", "train.colocate_actor_ref"},
    {"colocate_critic_reward", "train.colocate_critic_reward"},
    {"advantage_estimator", "algo.advantage.estimator"},
    {"async_train", "train.async_enable"},
    {"use_dynamic_batch", "train.dynamic_batch_enable"},
    {"train_max_tokens_per_gpu", "train.max_tokens_per_gpu"},
    {"rollout_max_tokens_per_gpu", "rollout.max_tokens_per_gpu"},
    {"train_batch_size", "train.batch_size"},
    {"micro_train_batch_size", "train.micro_batch_size"},
    {"rollout_batch_size", "rollout.batch_size"},
    {"micro_rollout_batch_size", "rollout.micro_batch_size"},
    {"n_samples_per_prompt", "rollout.n_samples_per_prompt"},
    {"max_epochs", "train.max_epochs"},
    {"max_len", "data.max_len"},
    {"generate_max_len", "rollout.max_new_tokens"},
};

ForeignKeys with_new_names(ForeignKeys keys) {
  for (const auto& [old_name, name] : kOldNames) {
    auto node = keys.extract(std::string("--") + old_name);
    if (node.empty()) continue;
    node.key() = std::string("--") + name;
    keys.insert(std::move(node));
  }
  return keys;
}

int devices_of(ForeignReader& reader, const std::string& role) {
  return reader.number("--" + role + ".num_nodes", 1) *
         reader.number("--" + role + ".num_gpus_per_node", 8);
}

ForeignStage training(ForeignReader& reader) {
  const std::string zero_stage = "--ds.zero_stage";
  const std::string zero = reader.text(zero_stage).value_or("2");
  if (zero != "0" && zero != "1") reader.approximate(zero_stage + " " + zero, kShardedWeights);
  reader.require_one("--ds.ring_attn_size", kNoContextParallelism);
  const bool adam = reader.flag("--ds.adam_offload", false);
  const bool sleep = reader.flag("--ds.enable_sleep", false);
  if (adam) {
    reader.approximate("--ds.adam_offload",
                       "weights wait in host memory with the optimizer state; "
                       "the optimizer still runs on the device");
  }
  ForeignStage stage{.tp = reader.number("--ds.tensor_parallel_size", 1),
                     .shards = zero == "0" ? 1 : 0,
                     .recompute = reader.flag("--actor.gradient_checkpointing_enable", false),
                     .offload = adam || sleep};
  if (reader.flag("--train.dynamic_batch_enable", false)) {
    reader.approximate("--train.dynamic_batch_enable", kTokenBudget);
    stage.micro_batch.tokens = reader.number("--train.max_tokens_per_gpu").value_or(16192);
  } else {
    stage.micro_batch.per_rank = reader.number("--train.micro_batch_size");
  }
  return stage;
}

// Which model-stages share devices: all, or actor and reference, or none; engines that share them
// all must be as many as fill them.
void assign_groups(ForeignReader& reader, bool with_critic, ForeignSetting& setting) {
  const int of_actor = devices_of(reader, "actor");
  const int of_critic = devices_of(reader, "critic");
  const int of_reference = devices_of(reader, "ref");
  const int engine = setting.stages.at(kActorGeneration).tp;
  const int of_engines = engine * reader.number("--vllm.num_engines", of_actor / engine);
  const bool together = reader.flag("--train.colocate_all", false);
  const bool with_reference = reader.flag("--train.colocate_actor_ref", false);
  const bool with_engines = together && !setting.asynchronous;
  if (with_engines && of_engines != of_actor) {
    throw Error(ErrorCode::kInvalidInput,
                "--train.colocate_all: vllm.num_engines × vllm.tensor_parallel_size = " +
                    std::to_string(of_engines) + ", but the actor has " + std::to_string(of_actor) +
                    " devices");
  }
  setting.groups = {of_actor};
  const auto own = [&](ModelStage model_stage, int devices) {
    setting.stages.at(model_stage).group = setting.groups.size();
    setting.groups.push_back(devices);
  };
  if (with_critic && !together) own(kCriticTraining, of_critic);
  if (!together && !with_reference) own(kReferenceInference, of_reference);
  if (!with_engines) own(kActorGeneration, of_engines);
}

}  // namespace

ForeignSetting translate_openrlhf(ForeignKeys keys) {
  ForeignReader reader(with_new_names(std::move(keys)));
  ForeignSetting setting;
  const ForeignStage train = training(reader);
  ForeignStage reference = train;
  reference.shards = 1;
  reference.recompute = false;
  reference.offload = reader.flag("--ref.offload", false);
  reference.micro_batch = {.per_rank = reader.number("--rollout.micro_batch_size")};
  const ForeignStage generation{.tp = reader.number("--vllm.tensor_parallel_size", 1),
                                .offload = reader.flag("--vllm.enable_sleep", false)};
  setting.stages = {{kActorGeneration, generation},
                    {kActorTraining, train},
                    {kCriticTraining, train},
                    {kReferenceInference, reference}};
  setting.asynchronous = reader.flag("--train.async_enable", false);
  setting.execution.gradient_overlap = reader.flag("--ds.overlap_comm", false) ? 1 : 0;
  const auto estimator = reader.text("--algo.advantage.estimator");
  const bool with_critic = estimator.value_or("gae") == "gae";
  assign_groups(reader, with_critic, setting);
  setting.job = {.critic = estimator ? std::optional(with_critic) : std::nullopt,
                 .prompts = reader.number("--rollout.batch_size"),
                 .samples_per_prompt = reader.number("--rollout.n_samples_per_prompt"),
                 .mini_batch_sequences = reader.number("--train.batch_size"),
                 .epochs = reader.number("--train.max_epochs"),
                 .prompt_length = reader.number("--prompt_max_len"),
                 .response_length = reader.number("--rollout.max_new_tokens"),
                 .total_length = reader.number("--data.max_len")};
  reader.finish(kRules, setting);
  return setting;
}

}  // namespace nereus
