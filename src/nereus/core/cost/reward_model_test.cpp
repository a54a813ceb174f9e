// A reward model costs what a reference of the same shape costs.
#include <gtest/gtest.h>

#include "nereus/core/cost/memory.h"
#include "nereus/core/cost/step_latency.h"
#include "nereus/core/cost/test_job.h"

namespace nereus {
namespace {

// A job whose reference has the shape of its reward model.
JobSpec twin_job() {
  JobSpec job = stories_job(64);
  job.workflow = ppo_workflow(/*with_reference=*/true, /*with_reward_model=*/true);
  job.models[Role::kReference] =
      job.models[Role::kReward] = {as_critic(stories_spec()), DType::kFloat32};
  return job;
}

TEST(RewardModel, CostsWhatAReferenceCosts) {
  const JobSpec job = twin_job();
  const Cluster cluster = cpu_cluster(4, Bytes(1 << 30), 4);
  for (const Layout layout : {Layout{1, 1}, Layout{2, 1}, Layout{1, 2}}) {
    const Plan plan = uniform_plan(job, layout, 4 / layout.devices(), 2);
    const StepLatency latency = predict_step(plan, job, cluster, {});
    std::map<std::string, NodeLatency> nodes;
    for (const NodeLatency& node : latency.nodes) nodes[node.name] = node;
    EXPECT_EQ(nodes.at("reward").ideal, nodes.at("ref").ideal);
    EXPECT_GT(nodes.at("reward").predicted, Seconds());

    std::map<ModelStage, Bytes> bytes;
    for (const MemoryEntry& entry : predict_memory(plan, job, {}).entries) {
      bytes[entry.model_stage] += entry.bytes;
    }
    EXPECT_EQ(bytes.at(kRewardInference), bytes.at(kReferenceInference));
  }
}

TEST(RewardModel, WaitsForItsDevices) {
  JobSpec job = twin_job();
  const Cluster cluster = cpu_cluster(2, Bytes(1 << 30), 2);
  const auto step_with = [&](const Workflow& workflow) {
    job.workflow = workflow;
    return predict_step(uniform_plan(job, {1, 1}, 2, 2), job, cluster, {});
  };
  const StepLatency by_rule = step_with(ppo_workflow(true));
  const StepLatency by_model = step_with(ppo_workflow(true, true));
  const auto reward = std::ranges::find(by_model.nodes, "reward", &NodeLatency::name);
  // All model-stages share all devices, so every pass adds its time.
  EXPECT_NEAR(by_model.total.count(), (by_rule.total + reward->predicted).count(),
              1e-3 * by_rule.total.count());
}

}  // namespace
}  // namespace nereus
