#include "nereus/engine/primitive_executor.h"

#include "nereus/base/error.h"
#include "nereus/engine/stopwatch.h"

namespace nereus {

namespace {

using StageHashes = std::map<ModelStage, std::map<std::string, uint64_t>>;

// The hashes of each model-stage, after checking that all its units agree.
StageHashes hash_stages(const Plan& plan, const StateStore& store) {
  StageHashes hashes;
  for (const StagePlan& stage : plan.stages) {
    for (const Emu& emu : units_of(stage)) {
      auto unit_hashes = store.hashes(emu);
      const auto [entry, is_first] = hashes.try_emplace(stage.model_stage, unit_hashes);
      for (const auto& [name, hash] : unit_hashes) {
        NEREUS_CHECK(entry->second.at(name) == hash,
                     to_string(emu) + ": " + name + " differs between replicas");
      }
    }
  }
  return hashes;
}

void check_equal(const StageHashes& before, const StageHashes& after) {
  for (const auto& [model_stage, hashes] : before) {
    for (const auto& [name, hash] : hashes) {
      NEREUS_CHECK(after.at(model_stage).at(name) == hash,
                   to_string(model_stage) + ": " + name + " changed during a transition");
    }
  }
}

Bytes execute(const Primitive& primitive, StateStore& store, const StateSchema& schema) {
  Bytes moved;
  if (!primitive.targets.empty()) {
    const ReshardPlan plan = reshard(primitive.sources, primitive.targets, schema);
    for (const Emu& target : primitive.targets) store.create(target, schema);
    std::vector<StateKind> kinds;
    for (const StateComponent& component : schema.components) kinds.push_back(component.kind);
    store.copy(plan, primitive.sources, primitive.targets, kinds);
    moved = plan.moved;
  }
  if (consumes_sources(primitive.kind)) {
    for (const Emu& source : primitive.sources) store.destroy(source);
  }
  return moved;
}

}  // namespace

TransitionReport execute(const TransitionDag& dag, StateStore& store,
                         const std::function<StateSchema(ModelStage)>& schema_of, bool verify) {
  TransitionReport report;
  const Stopwatch before_timer;
  const StageHashes before = verify ? hash_stages(dag.from, store) : StageHashes{};
  if (verify) report.verification += before_timer.elapsed();

  const Stopwatch transition_timer;
  for (const Primitive& primitive : dag.primitives) {
    const Stopwatch timer;
    const Bytes moved = execute(primitive, store, schema_of(primitive.model_stage));
    report.primitives.push_back({primitive.id, timer.elapsed(), moved});
    report.moved += moved;
  }
  report.measured = transition_timer.elapsed();

  if (verify) {
    const Stopwatch after_timer;
    check_equal(before, hash_stages(dag.to, store));
    report.verification += after_timer.elapsed();
    report.verified = true;
  }
  return report;
}

}  // namespace nereus
