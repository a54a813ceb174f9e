// Figure 4b of the paper: which layout is best, and which fit, as responses grow.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "nereus/core/cost/memory.h"
#include "nereus/core/cost/step_latency.h"
#include "nereus/core/cost/test_job.h"

namespace nereus {
namespace {

// PPO on Llama-3.1-8B at `length` tokens a sequence; the critic has devices of its own.
JobSpec actor_side(int64_t length) {
  JobSpec job = large_job(length - 256);
  job.workload.prompt_tokens = 256;
  std::erase_if(job.workflow.nodes,
                [](const WorkflowNode& node) { return node.runs_on.role == Role::kCritic; });
  return job;
}

// Every model-stage with dp = devices / (tp · pp), unit after unit, host after host.
Plan colocated(const JobSpec& job, const Cluster& cluster, Layout layout, int micro_batch) {
  Plan plan;
  const std::vector<DeviceId> devices = all_devices(cluster).devices();
  for (ModelStage model_stage : model_stages(job.workflow)) {
    StagePlan stage{.model_stage = model_stage, .layout = layout, .micro_batch = micro_batch};
    for (auto at = devices.begin(); at != devices.end(); at += layout.devices()) {
      stage.units.emplace_back(at, at + layout.devices());
    }
    plan.stages.push_back(std::move(stage));
  }
  return plan;
}

// The training stage's time with the best micro-batch that fits.
std::optional<Seconds> training_time(const JobSpec& job, const Cluster& cluster, Layout layout) {
  std::optional<Seconds> best;
  for (int micro_batch : {1, 2, 4}) {
    const Plan plan = colocated(job, cluster, layout, micro_batch);
    if (!memory_violations(predict_memory(plan, job, {}), cluster, 0.1).empty()) continue;
    const auto train = std::ranges::find(job.workflow.nodes, Pass::kTrain, &WorkflowNode::pass);
    const Seconds time = predicted_time(ideal_node_work(*train, plan, job, cluster), {});
    if (!best || time < *best) best = time;
  }
  return best;
}

// On 16 A100-64GB, dp 4 · tp 2 · pp 2 is best at 2K and does not fit at 4K, where dp 4 · tp 4 does:
// two micro-batches in flight on half as many tensor-parallel ranks are too much.
TEST(Figure4, TheBestLayoutAt2KDoesNotFitAt4K) {
  const Cluster cluster = named_cluster("a100x4", 4);
  const auto time = [&](int64_t length, Layout layout) {
    return training_time(actor_side(length), cluster, layout);
  };
  const std::optional<Seconds> best = time(2048, {2, 2});
  ASSERT_TRUE(best);
  int slower = 0;  // that fit as well
  for (int tp : {1, 2, 4}) {
    for (int pp : {1, 2, 4, 8}) {
      if (tp * pp > 16 || Layout{tp, pp} == Layout{2, 2}) continue;
      const std::optional<Seconds> other = time(2048, {tp, pp});
      EXPECT_TRUE(!other || *other > *best) << to_string(Layout{tp, pp});
      slower += other ? 1 : 0;
    }
  }
  EXPECT_GE(slower, 2) << "it is the best of several";
  EXPECT_FALSE(time(4096, {2, 2}));
  EXPECT_TRUE(time(4096, {4, 1}));
}

}  // namespace
}  // namespace nereus
