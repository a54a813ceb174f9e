#include <algorithm>

#include "nereus/core/base/text.h"
#include "nereus/runtime/engine/execution.h"
#include "nereus/runtime/engine/stopwatch.h"

namespace nereus {

namespace {

// How the units of a model-stage are made from all that is left of it.
struct Salvage {
  Primitive primitive;
  ReshardPlan moves;
  Bytes growth;  // of memory in use, over all devices
  std::vector<std::string> missing;
};

// All units that are in the store or in the plan.
EmuCollection all_units(const StateStore& store, const Plan& to) {
  EmuCollection units = store.units();
  for (const StagePlan& stage : to.stages) {
    for (const Emu& unit : units_of(stage)) {
      if (std::ranges::find(units, unit) == units.end()) units.push_back(unit);
    }
  }
  return units;
}

Bytes bytes_on(const StateStore& store, const Emu& unit) {
  Bytes bytes;
  for (const DeviceId device : unit.devices) {
    const UnitState* state = store.find(unit, device);
    if (state == nullptr) continue;
    for (const StateComponent& component : state->schema().components) {
      for (const at::Tensor& arena : state->arenas(component.kind)) {
        bytes += Bytes(static_cast<int64_t>(arena.nbytes()));
      }
    }
  }
  return bytes;
}

// `wanted`: the units that the plan has of the model-stage; all others are freed.
Salvage salvage(const EmuCollection& units, ModelStage model_stage, const EmuCollection& wanted,
                const StateStore& store, const StateSchema& schema) {
  Salvage result;
  Primitive& primitive = result.primitive;
  primitive.kind = wanted.empty() ? PrimitiveKind::kDestroy : PrimitiveKind::kRoute;
  primitive.model_stage = model_stage;
  primitive.chunked = true;
  EmuCollection sources;
  for (int i = 0; i < static_cast<int>(units.size()); ++i) {
    if (units[i].model_stage != model_stage) continue;
    sources.push_back(units[i]);
    primitive.sources.push_back(i);
    const bool stays = std::ranges::find(wanted, units[i]) != wanted.end();
    (stays ? primitive.targets : primitive.frees).push_back(i);
    if (!stays) result.growth -= bytes_on(store, units[i]);
  }
  if (wanted.empty()) return result;

  const auto holds = [&](int source, DeviceId device, int layer) {
    const int chunk = chunk_of({.layer = layer}, schema.num_layers);
    return store.holds(sources[source], device, chunk);
  };
  result.missing = missing_state(sources, schema, holds);
  if (!result.missing.empty()) return result;
  EmuCollection targets;
  for (const int target : primitive.targets) targets.push_back(units[target]);
  for (Move& move : reshard(sources, targets, schema, holds).moves) {
    const int chunk = chunk_of(schema.tensors[move.tensor], schema.num_layers);
    if (store.holds(targets[move.target_unit], move.to, chunk)) continue;
    const Bytes bytes = bytes_of(move, schema);
    (move.from == move.to ? result.moves.resident : result.moves.moved) += bytes;
    result.growth += bytes;
    result.moves.moves.push_back(std::move(move));
  }
  return result;
}

// "actor/training: no unit holds …; no unit holds … and 20 more"
std::string describe(const Salvage& lost) {
  constexpr size_t kShown = 8;
  std::vector<std::string> shown = lost.missing;
  shown.resize(std::min(shown.size(), kShown));
  const size_t rest = lost.missing.size() - shown.size();
  return to_string(lost.primitive.model_stage) + ": " + join(shown, "; ") +
         (rest > 0 ? " and " + std::to_string(rest) + " more" : "");
}

using Schemas = std::function<StateSchema(ModelStage)>;

Expected<TransitionReport> recover_at_once(const Plan& to, StateStore& store,
                                           const Schemas& schema_of,
                                           const ExecuteOptions& options) {
  TransitionDag dag;
  dag.to = to;
  dag.units = all_units(store, to);
  std::map<ModelStage, EmuCollection> wanted;
  for (const Emu& unit : dag.units) wanted[unit.model_stage];
  for (const StagePlan& stage : to.stages) wanted[stage.model_stage] = units_of(stage);

  std::vector<Salvage> salvages;
  std::vector<std::string> lost;
  for (const auto& [model_stage, units] : wanted) {
    salvages.push_back(salvage(dag.units, model_stage, units, store, schema_of(model_stage)));
    if (!salvages.back().missing.empty()) lost.push_back(describe(salvages.back()));
  }
  if (!lost.empty()) return tl::unexpected(join(lost, "\n"));

  // Release before acquire.
  std::ranges::stable_sort(salvages, {}, &Salvage::growth);
  std::vector<ReshardPlan> moves;
  for (Salvage& part : salvages) {
    part.primitive.id = static_cast<int>(dag.primitives.size());
    dag.primitives.push_back(std::move(part.primitive));
    moves.push_back(std::move(part.moves));
  }
  return run_primitives(dag, moves, store, schema_of, options);
}

// One copy of each model-stage that is not complete under `to` in the memory of the host with the
// most room; nothing if there is no host memory.
std::optional<Plan> parked(Plan to, const StateStore& store, const Schemas& schema_of,
                           const WorkerPool& workers) {
  std::map<DeviceId, Bytes> room;
  for (const DeviceId device : workers.devices()) {
    if (is_host_memory(device)) room[device] = workers.at(device).memory().budget();
  }
  if (room.empty()) return std::nullopt;
  for (StagePlan& stage : to.stages) {
    const EmuCollection units = units_of(stage);
    if (std::ranges::all_of(units, [&](const Emu& unit) { return store.contains(unit); })) continue;
    auto& [host, free] =
        *std::ranges::max_element(room, {}, [](const auto& entry) { return entry.second; });
    stage.layout = {};
    stage.units = {{host}};
    free -= state_bytes(schema_of(stage.model_stage), stage.layout, 0);
  }
  return to;
}

TransitionReport joined(const TransitionReport& first, TransitionReport second) {
  second.measured += first.measured;
  second.exposed += first.exposed;
  second.moved += first.moved;
  second.resident += first.resident;
  return second;
}

}  // namespace

Expected<TransitionReport> recover(const Plan& to, StateStore& store, const Schemas& schema_of,
                                   const ExecuteOptions& options) {
  const WorkerPool& workers = workers_for(store, options);
  auto report = recover_at_once(to, store, schema_of, options);
  const bool lacks_memory = report && report->failure && report->failure->lost.empty();
  const auto parking = lacks_memory ? parked(to, store, schema_of, workers) : std::nullopt;
  if (parking) {
    for (const Plan& step : {*parking, to}) {
      auto next = recover_at_once(step, store, schema_of, options);
      if (!next) return next;
      report = joined(*report, *std::move(next));
      if (report->failure) break;
    }
  }
  if (!report || report->failure || !options.verify || options.expected.empty()) return report;

  const Stopwatch timer;
  check_equal(options.expected, hash_stages(to, store, workers));
  report->verification = timer.elapsed();
  report->verified = true;
  return report;
}

}  // namespace nereus
