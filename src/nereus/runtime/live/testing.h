// A small PPO job for tests: the digit task with a tiny random model and its own tokenizer.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "nereus/core/transition/compile.h"
#include "nereus/runtime/engine/testing.h"
#include "nereus/runtime/files/files.h"
#include "nereus/runtime/live/live_job.h"

namespace nereus::testing {

// The config.json of a model small enough for seconds of float64, with shared KV heads at tp 4 and
// layers that pp 2 cuts unevenly. Written to a directory of this process.
inline std::filesystem::path tiny_model() {
  const auto directory =
      std::filesystem::temp_directory_path() / ("nereus_tiny_" + std::to_string(::getpid()));
  const ModelSpec spec{.vocab_size = 16,
                       .hidden_size = 32,
                       .intermediate_size = 44,
                       .num_layers = 3,
                       .num_heads = 4,
                       .num_kv_heads = 2,
                       .head_dim = 8,
                       .tie_word_embeddings = true,
                       .eos_token_ids = {1},
                       .pad_token_id = 2};
  write_text(directory / "config.json", to_hf_config(spec, DType::kFloat64).dump());
  return directory;
}

// 8 prompts × 2 samples a step, two optimizer steps each for actor and critic, float64.
inline LiveOptions tiny_job(int devices, int steps) {
  const auto digits = std::filesystem::path(NEREUS_SOURCE_DIR) / "assets/digits";
  LiveOptions options;
  options.cluster = cpu_cluster(devices, Bytes(int64_t{1} << 30), devices);
  options.backend = backend(devices);
  for (const Role role : {Role::kActor, Role::kCritic, Role::kReference}) {
    options.models[role] = {tiny_model(), /*random_weights=*/true};
  }
  options.dtype = DType::kFloat64;
  options.data = {.train_file = digits / "train.jsonl",
                  .prompt_key = "prompt",
                  .tokenizer = digits,
                  .train_batch_size = 8,
                  .samples_per_prompt = 2,
                  .max_prompt_length = 16,
                  .shuffle = true};
  options.validation.before_training = true;
  options.ppo.use_kl_in_reward = true;
  options.ppo.kl_coef = 0.01;
  options.ppo.advantage.lam = 0.95;
  options.ppo.mini_batch = 4;
  options.ppo.policy.entropy_coeff = 0.01;
  options.actor_optimizer.lr = 1e-3;
  options.critic_optimizer.lr = 1e-3;
  options.response_length = {{{0, 6}}};
  options.supply = constant_supply(options.cluster);
  options.reward = "digit_completion";
  options.reward_limits.timeout = Seconds(60);
  options.max_reward_failures = 0.05;
  options.exclude_unscored = true;
  options.verify_transitions = true;
  options.total_steps = steps;
  options.seed = 7;
  return options;
}

// The same layout for every model-stage, on the first dp · tp · pp devices.
inline Plan uniform_plan(const LiveOptions& options, Layout layout, int dp,
                         bool recompute = false) {
  const std::vector<DeviceId> devices = all_devices(options.cluster).devices();
  Plan plan;
  for (const ModelStage model_stage : model_stages(job_spec(options, 0).workflow)) {
    StagePlan stage{model_stage, layout, {}, /*micro_batch=*/2, false, false};
    for (int unit = 0; unit < dp; ++unit) {
      const auto begin = devices.begin() + unit * layout.devices();
      stage.units.emplace_back(begin, begin + layout.devices());
    }
    stage.recompute = recompute && model_stage.stage == Stage::kTraining;
    plan.stages.push_back(std::move(stage));
  }
  return plan;
}

// All logical training state, by part ("actor", "critic") and name.
inline std::map<std::string, TensorMap> state_of(const LiveJob& job) {
  const std::filesystem::path root = tiny_model() / "state";
  std::filesystem::remove_all(root);
  job.save(root, Json(), 0);
  const Checkpoint checkpoint = newest_checkpoint(root).value();
  std::map<std::string, TensorMap> parts;
  for (const StagePlan& stage : job.plan().stages) {
    if (stage.model_stage.stage != Stage::kTraining) continue;
    const std::string part = to_string(stage.model_stage.role);
    parts[part] = read_part(checkpoint, part);
  }
  return parts;
}

inline double largest_difference(const TensorMap& a, const TensorMap& b) {
  double largest = 0;
  EXPECT_FALSE(a.empty());
  EXPECT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    const double difference = (tensor - b.at(name)).abs().max().template item<double>();
    EXPECT_TRUE(std::isfinite(difference)) << name;  // NaN is larger than nothing
    largest = std::max(largest, difference);
  }
  return largest;
}

inline void switch_to(LiveJob& job, const LiveOptions& options, const Plan& plan) {
  const auto dag =
      compile_transition(job.plan(), plan, job_spec(options, 0), options.cluster, Calibration());
  ASSERT_TRUE(dag) << dag.error();
  const TransitionReport report = job.apply(*dag);
  EXPECT_TRUE(report.verified);
  EXPECT_EQ(job.plan(), plan);
}

// Rule 1 of the design: a run that has plan i in step i matches the run that never changes.
inline void expect_transitions_change_nothing(const LiveOptions& options,
                                              const std::vector<Plan>& plans,
                                              const std::vector<std::string>& metrics) {
  LiveJob fixed(options, uniform_plan(options, {1, 1}, 1));
  LiveJob adaptive(options, plans.front());
  for (size_t step = 0; step < plans.size(); ++step) {
    if (step > 0) switch_to(adaptive, options, plans[step]);
    const StepReport expected = fixed.run_step();
    const StepReport actual = adaptive.run_step();
    EXPECT_EQ(actual.response_tokens, expected.response_tokens) << "step " << step;
    for (const std::string& key : metrics) {
      EXPECT_NEAR(actual.metrics.at(key), expected.metrics.at(key), 1e-10)
          << key << " in step " << step;
    }
  }
  const auto actual = state_of(adaptive);
  for (const auto& [part, tensors] : state_of(fixed)) {
    EXPECT_LT(largest_difference(tensors, actual.at(part)), 1e-10) << part;
  }
  EXPECT_TRUE(adaptive.done());
}

}  // namespace nereus::testing
