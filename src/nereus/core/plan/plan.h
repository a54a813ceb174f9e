// A plan: for every model-stage its parallel layout and the devices of each replica.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "nereus/core/cluster/cluster.h"
#include "nereus/core/model/model_spec.h"
#include "nereus/core/plan/model_stage.h"

namespace nereus {

// How one replica is cut.
struct Layout {
  int tp = 1;  // tensor parallel
  int pp = 1;  // pipeline parallel
  int ep = 1;  // expert parallel: divides tp, whose ranks form ep groups with experts of their own
  int zero = 1;  // ZeRO-1: data-parallel ranks that hold the optimizer state once between them
  int devices() const { return tp * pp * zero; }
  auto operator<=>(const Layout&) const = default;
};

std::string to_string(Layout layout);  // "tp2·pp1", with "·ep2" and "·zero2" if not 1

// A device's place within a unit. Rank order: tp fastest, then pp, then zero.
struct Rank {
  int tp = 0;
  int pp = 0;
  int zero = 0;
  auto operator<=>(const Rank&) const = default;
};
Rank rank_at(Layout layout, int index);

struct StagePlan {
  ModelStage model_stage;
  Layout layout;
  // One entry per complete copy of the state: its layout.devices() devices in rank order.
  std::vector<std::vector<DeviceId>> units;
  int micro_batch = 1;     // sequences per micro-batch and unit in training and inference passes
  bool recompute = false;  // activation recomputation, layer by layer
  bool offload = false;    // idle state waits in host memory
  int waves = 1;           // generation: a unit writes its responses in so many parts, in turns
  // Data-parallel ranks: each unit has layout.zero of them.
  int dp() const { return static_cast<int>(units.size()) * layout.zero; }
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
// The expert-parallel degrees that the model admits under tp: they divide tp and the number of
// experts, and tp / ep is at most an expert's FFN width; without experts only 1.
std::vector<int> legal_ep(const ModelSpec& spec, int tp);

// Throws Error(kInvalidInput) with the value and the legal ones: no units, a unit of the wrong
// size, a device that is not in the pool or twice in one model-stage, tp or ep that does not suit
// the model, more pipeline stages than layers, zero outside training, waves outside generation,
// tp across hosts, micro_batch or waves < 1, stages unsorted or repeated. `model_of` gives the
// ModelSpec of each stage of plan.stages, in order.
void verify(const Plan& plan, const DevicePool& pool, std::span<const ModelSpec> model_of);

// One line for people: "actor/training tp2·pp1·dp2 mb8 [0:0 0:1][0:2 0:3]".
std::string to_string(const StagePlan& stage);
std::string to_string(const Plan& plan);  // one such line per stage

void to_json(Json& j, const StagePlan& stage);
void from_json(const Json& j, StagePlan& stage);
void to_json(Json& j,
             const Plan& plan);  // {"stages": [{"role", "stage", "tp", "pp", "ep", "zero", "dp",
                                 // "units", …}]}
void from_json(const Json& j, Plan& plan);

}  // namespace nereus
