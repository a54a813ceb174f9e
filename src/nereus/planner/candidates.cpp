#include "nereus/planner/candidates.h"

#include <algorithm>

#include "nereus/cost/shape.h"
#include "nereus/planner/placement.h"

namespace nereus {
namespace {

std::vector<int> powers_of_two(int64_t limit) {
  std::vector<int> powers;
  for (int power = 1; power <= limit; power *= 2) powers.push_back(power);
  return powers;
}

std::vector<Layout> layouts(const ModelSpec& spec, const DevicePool& pool) {
  std::vector<Layout> all;
  for (int tp : legal_tp(spec, largest_host(pool))) {
    if ((tp & (tp - 1)) != 0) continue;
    for (int pp : powers_of_two(spec.num_layers)) {
      if (most_units({tp, pp}, pool) > 0) all.push_back({tp, pp});
    }
  }
  return all;
}

// The sequences that the replicas share: more replicas than that would idle.
int64_t shared_sequences(ModelStage model_stage, const Workload& workload) {
  return model_stage.stage == Stage::kTraining ? workload.mini_batch : workload.samples;
}

// The allowed micro-batches that make a difference to a unit with `own` sequences: those below, and
// the smallest that holds them all.
std::vector<int> useful_micro_batches(std::vector<int> allowed, int64_t own) {
  std::ranges::sort(allowed);
  const auto enough = std::ranges::find_if(allowed, [&](int size) { return size >= own; });
  if (enough != allowed.end()) allowed.erase(enough + 1, allowed.end());
  return allowed;
}

BytesPerDevice by_pool(const std::map<DeviceId, Bytes>& bytes, const DevicePool& pool) {
  BytesPerDevice all;
  for (DeviceId device : pool.devices()) {
    const auto found = bytes.find(device);
    all.push_back(found == bytes.end() ? Bytes() : found->second);
  }
  return all;
}

bool no_less_anywhere(const BytesPerDevice& a, const BytesPerDevice& b) {
  return std::ranges::equal(a, b, std::greater_equal<>());
}

// Fastest first; a slower variant stays only if it needs less memory somewhere.
void keep_frontier(std::vector<Variant>& variants, const StagePlan* current) {
  std::ranges::stable_sort(variants, [&](const Variant& a, const Variant& b) {
    if (a.time != b.time) return a.time < b.time;
    return current != nullptr && a.stage == *current && b.stage != *current;
  });
  std::vector<Variant> frontier;
  for (Variant& variant : variants) {
    const bool dominated = std::ranges::any_of(frontier, [&](const Variant& faster) {
      return no_less_anywhere(variant.transient, faster.transient);
    });
    if (!dominated) frontier.push_back(std::move(variant));
  }
  variants = std::move(frontier);
}

}  // namespace

std::vector<Placement> placements(ModelStage model_stage, const JobSpec& job,
                                  const Cluster& cluster, const DevicePool& pool,
                                  const Calibration& calibration, const PlannerOptions& options,
                                  const Plan* current) {
  const StagePlan* current_stage = current == nullptr ? nullptr : find(*current, model_stage);
  const int64_t sequences = shared_sequences(model_stage, job.workload);
  const std::vector<int> allowed = options.micro_batches.empty()
                                       ? powers_of_two(job.workload.mini_batch)
                                       : options.micro_batches;

  const auto variant = [&](const StagePlan& stage) {
    const Plan alone{{stage}};
    Variant result{.stage = stage};
    for (const WorkflowNode& node : job.workflow.nodes) {
      const bool host = node.pass == Pass::kReward || node.pass == Pass::kAdvantage;
      if (host || node.pass == Pass::kSyncWeights || node.runs_on != model_stage) continue;
      result.time += predicted_time(ideal_node_times(node, alone, job, cluster), calibration);
    }
    const MemoryPrediction memory = predict_memory(alone, job, calibration);
    result.transient = by_pool(memory.peak, pool);
    const BytesPerDevice resident = by_pool(memory.resident, pool);
    for (size_t i = 0; i < resident.size(); ++i) result.transient[i] -= resident[i];
    return result;
  };

  std::vector<Placement> all;
  for (Layout layout : layouts(job.model(model_stage.role), pool)) {
    const auto most = std::min<int64_t>(most_units(layout, pool), sequences);
    for (int dp = 1; dp <= most; ++dp) {
      Placement placement{.layout = layout};
      // Micro-batches do not matter to generation.
      const bool generates = model_stage.stage == Stage::kGeneration;
      const std::vector<int> sizes =
          generates ? std::vector{1} : useful_micro_batches(allowed, ceil_div(sequences, dp));
      for (int size : sizes) {
        StagePlan stage = place(model_stage, layout, dp, size, false, pool);
        placement.variants.push_back(variant(stage));
        if (!options.allow_recompute || model_stage.stage != Stage::kTraining) continue;
        stage.recompute = true;
        placement.variants.push_back(variant(stage));
      }
      const Plan alone{{placement.variants.front().stage}};
      placement.resident = by_pool(predict_memory(alone, job, calibration).resident, pool);
      keep_frontier(placement.variants, current_stage);
      all.push_back(std::move(placement));
    }
  }
  std::ranges::stable_sort(
      all, {}, [](const Placement& placement) { return placement.variants.front().time; });
  return all;
}

}  // namespace nereus
