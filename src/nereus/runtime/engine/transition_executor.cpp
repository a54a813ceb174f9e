#include "nereus/runtime/engine/transition_executor.h"

#include <algorithm>

#include "nereus/runtime/engine/execution.h"
#include "nereus/runtime/engine/stopwatch.h"

namespace nereus {

StageHashes hash_stages(const Plan& plan, const StateStore& store, const WorkerPool& workers) {
  StageHashes hashes;
  for (const StagePlan& stage : plan.stages) {
    for (const Emu& unit : units_of(stage)) {
      const auto of_unit = store.hashes(unit, workers);
      const auto [entry, is_first] = hashes.try_emplace(stage.model_stage, of_unit);
      for (const auto& [name, hash] : of_unit) {
        NEREUS_CHECK(entry->second.at(name) == hash,
                     to_string(unit) + ": " + name + " differs between replicas");
      }
    }
  }
  return hashes;
}

void check_equal(const StageHashes& expected, const StageHashes& actual) {
  for (const auto& [model_stage, hashes] : actual) {
    for (const auto& [name, hash] : expected.at(model_stage)) {
      NEREUS_CHECK(hashes.at(name) == hash,
                   to_string(model_stage) + ": " + name + " changed during a transition");
    }
  }
}

const WorkerPool& workers_for(const StateStore& store, const ExecuteOptions& options) {
  return options.workers != nullptr ? *options.workers : store.workers();
}

namespace {

// The model-stages that the DAG moves.
Plan moved_stages(Plan plan, const TransitionDag& dag) {
  std::erase_if(plan.stages, [&](const StagePlan& stage) {
    return std::ranges::none_of(dag.primitives, [&](const Primitive& primitive) {
      return primitive.model_stage == stage.model_stage;
    });
  });
  return plan;
}

}  // namespace

TransitionReport execute(const TransitionDag& dag, StateStore& store,
                         const std::function<StateSchema(ModelStage)>& schema_of,
                         const ExecuteOptions& options) {
  const WorkerPool& workers = workers_for(store, options);
  const Stopwatch before;
  StageHashes expected = options.expected;
  if (options.verify && expected.empty()) {
    expected = hash_stages(moved_stages(dag.from, dag), store, workers);
  }
  const Seconds hashing = before.elapsed();

  std::vector<ReshardPlan> moves;
  for (const Primitive& primitive : dag.primitives) {
    moves.push_back(reshard(units_at(dag, primitive.sources), units_at(dag, primitive.targets),
                            schema_of(primitive.model_stage)));
  }
  TransitionReport report = run_primitives(dag, moves, store, schema_of, options);
  if (!options.verify) return report;

  report.verification = hashing;
  if (report.failure) return report;
  const Stopwatch after;
  check_equal(expected, hash_stages(moved_stages(dag.to, dag), store, workers));
  report.verification += after.elapsed();
  report.verified = true;
  return report;
}

}  // namespace nereus
