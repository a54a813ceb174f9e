// Elastic Model Units: one complete copy of the logical state of a model-stage, under one layout on
// one device group.
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "nereus/core/state/sharding.h"
#include "nereus/core/workflow/job_spec.h"

namespace nereus {

struct StateComponent {
  StateKind kind = StateKind::kWeights;
  DType dtype = DType::kFloat32;
  bool operator==(const StateComponent&) const = default;
};

// All the logical state of a model-stage: every tensor in every component.
struct StateSchema {
  std::vector<TensorSpec> tensors;
  int num_layers = 0;
  std::vector<StateComponent> components;
  Bytes bytes_per_element() const;                // of all components
  Bytes bytes_per_element(StatePart part) const;  // of those of one part; may be 0
};

// Training stages hold weights, an fp32 master copy if weights are half precision, and both Adam
// moments (fp32; fp64 if weights are fp64); all others hold weights only.
StateSchema state_schema(const ModelUse& model, ModelStage model_stage);

struct Emu {
  ModelStage model_stage;
  Layout layout;
  std::vector<DeviceId> devices;  // in rank order; a host's memory is a place to wait
  auto operator<=>(const Emu&) const = default;
  bool operator==(const Emu&) const = default;
};
using EmuCollection = std::vector<Emu>;

std::string to_string(const Emu& emu);  // "actor/training tp2·pp1 [0:0 0:1]"
void to_json(Json& j, const Emu& emu);
void from_json(const Json& j, Emu& emu);

// Φ: the units of one model-stage of a plan.
EmuCollection units_of(const StagePlan& stage);
// The index of `device` in the unit's rank order, or -1.
int index_of(const Emu& emu, DeviceId device);

// Bytes of state that the rank at `index` of the unit holds.
Bytes state_bytes(const StateSchema& schema, Layout layout, int index);

// True if `device` holds exactly the same boxes in both units (same layout, same rank): then one
// may use the other's bytes.
bool same_shards(const Emu& a, const Emu& b, DeviceId device);

// Throws Error(kInvalidInput) unless every unit has layout.devices() distinct devices, all units
// are of one model-stage, and no device appears in two of them.
void verify(const EmuCollection& collection);

}  // namespace nereus
