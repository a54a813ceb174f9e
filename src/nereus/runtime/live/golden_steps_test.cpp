// Two steps of every synchronous workflow in float64 beside a record that was made before the step
// became a graph: whatever executes it must do the same. NEREUS_WRITE_GOLDEN=FILE writes a new one.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <span>

#include "nereus/core/base/hash.h"
#include "nereus/runtime/data/hf_model.h"
#include "nereus/runtime/live/testing.h"

namespace nereus {
namespace {

using testing::tiny_job;
using testing::tiny_model;
using testing::uniform_plan;

struct GoldenCase {
  LiveOptions options;
  Layout layout{1, 1};
  int dp = 1;
};

LiveOptions without_critic(AdvantageEstimator estimator) {
  LiveOptions options = tiny_job(/*devices=*/4, /*steps=*/2);
  options.models.erase(Role::kCritic);
  options.ppo.advantage.estimator = estimator;
  return options;
}

LiveOptions with_kl_loss(LiveOptions options) {
  options.ppo.use_kl_in_reward = false;
  options.ppo.policy.use_kl_loss = true;
  options.ppo.policy.kl_loss_coef = 0.1;
  return options;
}

LiveOptions without_reference(LiveOptions options) {
  options.ppo.use_kl_in_reward = false;
  options.models.erase(Role::kReference);
  return options;
}

LiveOptions with_reward_model(LiveOptions options) {
  const auto directory = tiny_model() / "golden_reward";
  const ModelSpec spec = as_critic(read_model_spec(tiny_model()));
  write_text(directory / "config.json", to_hf_config(spec, DType::kFloat64).dump());
  write_safetensors(directory / "model.safetensors", random_model(spec, DType::kFloat64, 5));
  options.reward.clear();
  options.models[Role::kReward] = {directory};
  return options;
}

LiveOptions with_one_update(LiveOptions options) {
  options.ppo.mini_batch = options.data.train_batch_size;
  return options;
}

std::map<std::string, GoldenCase> golden_cases() {
  const LiveOptions ppo = tiny_job(/*devices=*/4, /*steps=*/2);
  LiveOptions epochs = ppo;
  epochs.ppo.epochs = 2;
  epochs.ppo.adaptive_kl = true;
  const LiveOptions grpo = without_critic(AdvantageEstimator::kGrpo);
  return {
      {"ppo", {ppo}},
      {"ppo tp2 dp2", {ppo, {2, 1}, 2}},
      {"ppo tp2 pp2", {ppo, {2, 2}, 1}},
      {"ppo epochs, adaptive kl", {epochs, {1, 2}, 2}},
      {"ppo without reference", {without_reference(ppo), {1, 1}, 4}},
      {"ppo reward model", {with_reward_model(ppo), {2, 1}, 1}},
      {"grpo", {grpo}},
      {"grpo kl loss", {with_kl_loss(grpo), {1, 1}, 2}},
      {"grpo one update", {with_one_update(with_kl_loss(grpo)), {2, 1}, 2}},
      {"grpo one update, no reference", {with_one_update(without_reference(grpo)), {1, 2}, 1}},
      {"rloo", {without_critic(AdvantageEstimator::kRloo), {1, 1}, 2}},
      {"reinforce++", {without_critic(AdvantageEstimator::kReinforcePlusPlus), {4, 1}, 1}},
      {"reinforce++ baseline",
       {without_critic(AdvantageEstimator::kReinforcePlusPlusBaseline), {1, 2}, 2}},
  };
}

bool is_maths(const std::string& metric) {
  return metric.starts_with("actor/") || metric.starts_with("critic/") ||
         metric.starts_with("reward/") || metric.starts_with("response_length/");
}

// Metrics that are no time, step by step, and a hash of all weights, moments and samples.
Json run_case(const GoldenCase& golden) {
  LiveOptions options = golden.options;
  options.ppo.always_old_log_probs = true;
  Json samples = Json::array();
  options.on_experience = [&](const Experience& experience) {
    for (const Sample& sample : experience) {
      samples.push_back({sample.response, sample.rollout_log_probs, sample.old_log_probs,
                         sample.ref_log_probs, sample.values, sample.token_scores,
                         sample.advantages, sample.returns});
    }
  };
  LiveJob job(options, uniform_plan(options, golden.layout, golden.dp));
  Json steps = Json::array();
  while (!job.done()) {
    Json metrics = Json::object();
    for (const auto& [name, value] : job.run_step().metrics) {
      if (is_maths(name)) metrics[name] = value;
    }
    steps.push_back(std::move(metrics));
  }
  const std::string all = Json(job.state_hashes()).dump() + samples.dump() + steps.dump();
  return {{"steps", steps}, {"hash", to_hex(hash_bytes(std::as_bytes(std::span(all))))}};
}

// Where a batch sees one update, its own forward pass computes what a pass before it would have.
TEST(GoldenSteps, OldLogProbabilitiesOfTheUpdateAreThoseOfAPass) {
  int shorter = 0;
  for (const auto& [name, golden] : golden_cases()) {
    std::vector<std::map<std::string, uint64_t>> hashes;
    std::vector<StepReport> reports;
    for (const bool always : {true, false}) {
      LiveOptions options = golden.options;
      options.ppo.always_old_log_probs = always;
      LiveJob job(options, uniform_plan(options, golden.layout, golden.dp));
      while (!job.done()) reports.push_back(job.run_step());
      hashes.push_back(job.state_hashes());
    }
    EXPECT_EQ(hashes[0], hashes[1]) << name;
    shorter += static_cast<int>(reports.back().spans.size() + 1 == reports.front().spans.size());
    for (const auto& [metric, value] : reports.front().metrics) {
      if (!is_maths(metric) && !metric.starts_with("training/rollout")) continue;
      EXPECT_EQ(reports[2].metrics.at(metric), value) << name << ": " << metric;
    }
  }
  EXPECT_EQ(shorter, 2) << "cases in which the pass is left out";
}

TEST(GoldenSteps, AreThoseOfTheRecord) {
  const auto file = std::filesystem::path(NEREUS_SOURCE_DIR) /
                    "src/nereus/runtime/live/testdata/golden_steps.json";
  const char* const write_to = std::getenv("NEREUS_WRITE_GOLDEN");
  const Json record = write_to ? Json::object() : parse_json(read_text(file), file.string());
  Json written = Json::object();
  int equal_to_the_bit = 0;
  for (const auto& [name, golden] : golden_cases()) {
    const Json found = run_case(golden);
    written[name] = found;
    if (write_to) continue;
    const Json& expected = record.at(name);
    equal_to_the_bit += static_cast<int>(found.at("hash") == expected.at("hash"));
    ASSERT_EQ(found.at("steps").size(), expected.at("steps").size()) << name;
    for (size_t step = 0; step < expected.at("steps").size(); ++step) {
      ASSERT_GT(expected.at("steps")[step].size(), 10u);
      for (const auto& [metric, value] : expected.at("steps")[step].items()) {
        ASSERT_TRUE(found.at("steps")[step].contains(metric)) << name << ": " << metric;
        EXPECT_NEAR(found.at("steps")[step].at(metric).get<double>(), value.get<double>(), 1e-10)
            << name << ": " << metric << " in step " << step;
      }
    }
  }
  if (write_to) write_text(write_to, written.dump(1) + "\n");
  // Another processor may round matrix products otherwise.
  std::printf("%d of %zu cases are equal to the bit\n", equal_to_the_bit, record.size());
}

}  // namespace
}  // namespace nereus
