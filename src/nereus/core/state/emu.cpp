#include "nereus/core/state/emu.h"

#include <algorithm>
#include <set>

#include "nereus/core/base/text.h"

namespace nereus {

Bytes StateSchema::bytes_per_element() const {
  Bytes sum;
  for (const StateComponent& component : components) sum += size_of(component.dtype);
  return sum;
}

Bytes StateSchema::bytes_per_element(StatePart part) const {
  Bytes sum;
  for (const StateComponent& component : components) {
    if (part_of(component.kind) == part) sum += size_of(component.dtype);
  }
  return sum;
}

StateSchema state_schema(const ModelUse& model, ModelStage model_stage) {
  StateSchema schema{tensors(model.spec), model.spec.num_layers, {}};
  schema.components.push_back({StateKind::kWeights, model.weights});
  if (model_stage.stage != Stage::kTraining) return schema;
  const bool half = model.weights == DType::kBFloat16 || model.weights == DType::kFloat16;
  if (half) schema.components.push_back({StateKind::kMaster, DType::kFloat32});
  const DType moments = half ? DType::kFloat32 : model.weights;
  schema.components.push_back({StateKind::kExpAvg, moments});
  schema.components.push_back({StateKind::kExpAvgSq, moments});
  return schema;
}

std::string to_string(const Emu& emu) {
  std::vector<std::string> devices;
  for (const DeviceId device : emu.devices) devices.push_back(to_string(device));
  return to_string(emu.model_stage) + " " + to_string(emu.layout) + " [" + join(devices, " ") + "]";
}

void to_json(Json& j, const Emu& emu) {
  j = Json{{"role", to_string(emu.model_stage.role)},
           {"stage", to_string(emu.model_stage.stage)},
           {"tp", emu.layout.tp},
           {"pp", emu.layout.pp},
           {"ep", emu.layout.ep},
           {"zero", emu.layout.zero},
           {"devices", emu.devices}};
}

void from_json(const Json& j, Emu& emu) {
  const std::string where = "unit";
  emu.model_stage = {parse_role(require<std::string>(j, "role", where)),
                     parse_stage(require<std::string>(j, "stage", where))};
  emu.layout = {.tp = require<int>(j, "tp", where),
                .pp = require<int>(j, "pp", where),
                .ep = optional(j, "ep", 1, where),
                .zero = optional(j, "zero", 1, where)};
  emu.devices = require<std::vector<DeviceId>>(j, "devices", where);
}

EmuCollection units_of(const StagePlan& stage) {
  EmuCollection units;
  for (const auto& devices : stage.units) {
    units.push_back({stage.model_stage, stage.layout, devices});
  }
  return units;
}

int index_of(const Emu& emu, DeviceId device) {
  const auto found = std::ranges::find(emu.devices, device);
  return found == emu.devices.end() ? -1 : static_cast<int>(found - emu.devices.begin());
}

Bytes state_bytes(const StateSchema& schema, Layout layout, int index) {
  int64_t bytes = 0;
  for (const TensorSpec& tensor : schema.tensors) {
    for (const StateComponent& component : schema.components) {
      const auto box =
          shard(tensor, schema.num_layers, layout, rank_at(layout, index), component.kind);
      if (box) bytes += volume(*box) * size_of(component.dtype).count();
    }
  }
  return Bytes(bytes);
}

bool same_shards(const Emu& a, const Emu& b, DeviceId device) {
  const int index = index_of(a, device);
  return index >= 0 && a.layout == b.layout && index == index_of(b, device);
}

void verify(const EmuCollection& collection) {
  std::set<DeviceId> taken;
  for (const Emu& emu : collection) {
    const auto refuse = [&](const std::string& problem) {
      throw Error(ErrorCode::kInvalidInput, to_string(emu) + ": " + problem);
    };
    if (static_cast<int>(emu.devices.size()) != emu.layout.devices()) {
      refuse(std::to_string(emu.devices.size()) + " devices, its layout needs " +
             std::to_string(emu.layout.devices()));
    }
    if (emu.model_stage != collection.front().model_stage) {
      refuse("another model-stage than " + to_string(collection.front().model_stage));
    }
    for (const DeviceId device : emu.devices) {
      if (!taken.insert(device).second) refuse("device " + to_string(device) + " appears twice");
    }
  }
}

}  // namespace nereus
