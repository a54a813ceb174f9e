// A plan: for every model-stage its parallel layout and the devices of each replica.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "nereus/cluster/cluster.h"
#include "nereus/model/model_spec.h"
#include "nereus/plan/model_stage.h"

namespace nereus {

// How one replica is cut: tensor and pipeline parallel degrees.
struct Layout {
  int tp = 1;
  int pp = 1;
  int devices() const { return tp * pp; }
  auto operator<=>(const Layout&) const = default;
};

std::string to_string(Layout layout);  // "tp2·pp1"

// A device's place within a unit. Rank order: tp fastest, rank = pp_rank * tp + tp_rank.
struct Rank {
  int tp = 0;
  int pp = 0;
  auto operator<=>(const Rank&) const = default;
};
Rank rank_at(Layout layout, int index);

struct StagePlan {
  ModelStage model_stage;
  Layout layout;
  // One entry per replica (dp of them): its layout.devices() devices in rank order.
  std::vector<std::vector<DeviceId>> units;
  int micro_batch = 1;     // sequences per micro-batch and unit in training and inference passes
  bool recompute = false;  // activation recomputation, layer by layer
  bool offload = false;    // idle state waits in host memory
  int dp() const { return static_cast<int>(units.size()); }
  bool operator==(const StagePlan&) const = default;
};

struct Plan {
  std::vector<StagePlan> stages;  // sorted by model_stage, one each
  bool operator==(const Plan&) const = default;
};

// The entry for a model-stage, or nullptr.
const StagePlan* find(const Plan& plan, ModelStage model_stage);
// Same, throws Error(kInternal) if there is none.
const StagePlan& at(const Plan& plan, ModelStage model_stage);
// Every device that some unit of the plan uses.
DevicePool devices_of(const Plan& plan);

// The tensor-parallel degrees up to `limit` that the model admits: they divide heads, and divide or
// are a multiple of KV heads; vocabulary and FFN may be cut unevenly, but not into more parts than
// they have rows.
std::vector<int> legal_tp(const ModelSpec& spec, int limit);

// Throws Error(kInvalidInput) with the value and the legal ones: no units, a unit of the wrong
// size, a device that is not in the pool or twice in one model-stage, tp that does not suit the
// model, more pipeline stages than layers, tp across hosts, micro_batch < 1, stages unsorted or
// repeated. `model_of` gives the ModelSpec of each stage of plan.stages, in order.
void verify(const Plan& plan, const DevicePool& pool, std::span<const ModelSpec> model_of);

// One line for people: "actor/training tp2·pp1·dp2 mb8 [0:0 0:1][0:2 0:3]".
std::string to_string(const StagePlan& stage);
std::string to_string(const Plan& plan);  // one such line per stage

void to_json(Json& j, const StagePlan& stage);
void from_json(const Json& j, StagePlan& stage);
void to_json(Json& j,
             const Plan& plan);  // {"stages": [{"role", "stage", "tp", "pp", "dp", "units", …}]}
void from_json(const Json& j, Plan& plan);

}  // namespace nereus
