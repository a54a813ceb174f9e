#include <string>
#include <utility>
#include <vector>

#include "nereus/app/compare/foreign_reader.h"
#include "nereus/core/base/error.h"

namespace nereus {

namespace {

const IgnoreRule kRules[] = {
    {kNoEffect,
     {"loss_fn.",
      "value_loss_fn.",
      "checkpointing.",
      "logger.",
      "*.scheduler",
      "*.optimizer.",
      "*.max_grad_norm",
      "*.tokenizer.",
      "data.dataset_name",
      "data.prompt_file",
      "data.shuffle",
      "data.num_workers",
      "data.train",
      "data.val",
      "data.default",
      "*.temperature",
      "*.top_",
      "*.stop_",
      "*.max_model_len",
      "*.make_sequence_length_divisible_by",
      "*.val_",
      "*.seed",
      "*.max_num_",
      "*.generation_batch_size"}},
    {kOfConfig,
     {"env.", "*.model_name", "*precision", "*dtype", "*.use_leave_one_out", "*.normalize_rewards",
      "*.reward_", "*.adv_estimator", "*.overlong_filtering", "*.max_rollout_turns",
      "*.use_dynamic_sampling", "*.converter_type"}},
    {"write what that file says, too, where it differs from NeMo-RL's defaults", {"defaults"}},
    {kOfLauncher, {"--"}},
    {kCacheFits, {"*gpu_memory_utilization"}},
    {"layers are cut evenly", {"*_pipeline_stage"}},
    {"a micro-batch is train_micro_batch_size of the longest sequences",
     {"*.sequence_packing.", "*.dynamic_batching."}},
    {"generation is predicted alike for all engines",
     {"policy.generation.backend", "*.async_engine", "*.enforce_eager", "*.vllm_kwargs"}},
    {"all weights are trained", {"*.lora_cfg."}},
    {kNotModelled,
     {"*.moe_", "*.distributed_data_parallel_config.", "*.apply_rope_fusion", "*_fusion",
      "*.defer_fp32_logits", "*.empty_unused_memory_level", "*._v2", "*.freeze_moe_router",
      "*.fp8_cfg", "*.env_vars", "*.logprob_chunk_size", "*.custom_parallel_plan"}},
    {"the other backend is in use",
     {"policy.dtensor_cfg.", "policy.megatron_cfg.", "value.dtensor_cfg.", "value.megatron_cfg."}},
};

ForeignStage megatron(ForeignReader& reader, const std::string& prefix) {
  reader.require_one(prefix + "context_parallel_size", kNoContextParallelism);
  reader.require_one(prefix + "expert_model_parallel_size", kNoExpertParallelism);
  const bool sharded = reader.flag(prefix + "optimizer.use_distributed_optimizer", true);
  return {.tp = reader.number(prefix + "tensor_model_parallel_size", 1),
          .pp = reader.number(prefix + "pipeline_model_parallel_size", 1),
          .shards = sharded ? 0 : 1,
          .recompute = reader.flag(prefix + "activation_checkpointing", false),
          .offload = reader.flag(prefix + "optimizer.optimizer_cpu_offload", false)};
}

ForeignStage dtensor(ForeignReader& reader, const std::string& prefix) {
  reader.require_one(prefix + "context_parallel_size", kNoContextParallelism);
  reader.require_one(prefix + "expert_parallel_size", kNoExpertParallelism);
  reader.approximate(prefix + "enabled", kShardedWeights);
  return {.tp = reader.number(prefix + "tensor_parallel_size", 1),
          .shards = 0,
          .recompute = reader.flag(prefix + "activation_checkpointing", false),
          .offload = reader.flag(prefix + "cpu_offload", false)};
}

// Of "policy." or "value.".
bool uses_megatron(ForeignReader& reader, const std::string& model) {
  const bool only =
      reader.has_section(model + "megatron_cfg.") && !reader.has_section(model + "dtensor_cfg.");
  return reader.flag(model + "megatron_cfg.enabled", only);
}

ForeignStage training(ForeignReader& reader, const std::string& model) {
  ForeignStage stage = uses_megatron(reader, model) ? megatron(reader, model + "megatron_cfg.")
                                                    : dtensor(reader, model + "dtensor_cfg.");
  stage.micro_batch.per_rank = reader.number(model + "train_micro_batch_size").value_or(4);
  return stage;
}

// Devices of training, and of generation if it has its own.
std::vector<int> device_groups(ForeignReader& reader) {
  const int per_node = reader.number("cluster.gpus_per_node", 1);
  const int nodes = reader.number("cluster.num_nodes", 1);
  const int all = per_node * nodes;
  const std::string colocated = "policy.generation.colocated.";
  if (reader.flag(colocated + "enabled", true)) return {all};
  const std::string resources = colocated + "resources.";
  const int of_generation = reader.number(resources + "num_nodes", 1) *
                            reader.number(resources + "gpus_per_node", per_node);
  if (of_generation >= all) {
    throw Error(ErrorCode::kInvalidInput,
                resources + ": generation takes " + std::to_string(of_generation) + " of " +
                    std::to_string(all) + " devices and leaves none for training");
  }
  return {all - of_generation, of_generation};
}

}  // namespace

ForeignSetting translate_nemo_rl(ForeignKeys keys) {
  ForeignReader reader(std::move(keys));
  const std::string vllm = "policy.generation.vllm_cfg.";
  const bool ppo = reader.has_section("ppo.");
  const std::string algorithm = ppo ? "ppo." : "grpo.";
  ForeignSetting setting;
  setting.groups = device_groups(reader);
  reader.require_one(vllm + "expert_parallel_size", kNoExpertParallelism);

  const bool is_megatron = uses_megatron(reader, "policy.");
  const ForeignStage actor = training(reader, "policy.");
  const std::string backend = is_megatron ? "policy.megatron_cfg." : "policy.dtensor_cfg.";
  setting.execution.sequence_parallel = reader.flag(backend + "sequence_parallel", false);
  const std::string overlap =
      "policy.megatron_cfg.distributed_data_parallel_config.overlap_grad_reduce";
  setting.execution.gradient_overlap = !is_megatron || reader.flag(overlap, true) ? 1 : 0;
  ForeignStage critic = actor;
  if (reader.has_section("value.")) critic = training(reader, "value.");
  ForeignStage reference = actor;
  reference.shards = 1;
  reference.recompute = false;
  if (const auto size = reader.number("policy.logprob_batch_size")) {
    reference.micro_batch.per_rank = size;
  }
  const bool own_devices = setting.groups.size() > 1;
  setting.stages = {{kActorGeneration,
                     {.tp = reader.number(vllm + "tensor_parallel_size", 1),
                      .pp = reader.number(vllm + "pipeline_parallel_size", 1),
                      .group = own_devices ? size_t{1} : size_t{0},
                      .offload = !own_devices}},
                    {kActorTraining, actor},
                    {kCriticTraining, critic},
                    {kReferenceInference, reference}};
  setting.asynchronous =
      reader.flag(algorithm + (ppo ? "async_ppo" : "async_grpo") + ".enabled", false);
  const bool named = ppo || reader.has_section("grpo.");
  setting.job = {.critic = named ? std::optional(ppo) : std::nullopt,
                 .prompts = reader.number(algorithm + "num_prompts_per_step"),
                 .samples_per_prompt = reader.number(algorithm + "num_generations_per_prompt"),
                 .mini_batch_sequences = reader.number("policy.train_global_batch_size"),
                 .epochs = reader.number(algorithm + "ppo_epochs"),
                 .prompt_length = reader.number("data.max_input_seq_length"),
                 .response_length = reader.number("policy.generation.max_new_tokens"),
                 .total_length = reader.number("policy.max_total_sequence_length")};
  reader.finish(kRules, setting);
  return setting;
}

}  // namespace nereus
