#include "nereus/core/transition/primitive.h"

#include <algorithm>

namespace nereus {

namespace {

// "tp2·pp1 [0:0 0:1]": what follows the model-stage in the unit's text.
std::string layout_and_devices(const Emu& unit) {
  return to_string(unit).substr(to_string(unit.model_stage).size());
}

}  // namespace

std::string to_string(PrimitiveKind kind) {
  switch (kind) {
    case PrimitiveKind::kSplit:
      return "split";
    case PrimitiveKind::kMerge:
      return "merge";
    case PrimitiveKind::kExtend:
      return "extend";
    case PrimitiveKind::kDestroy:
      return "destroy";
    case PrimitiveKind::kRoute:
      return "route";
  }
  return "?";
}

std::vector<int> chunk_order(int num_layers, int from, int to) {
  const int stages = std::min(std::max(from, to), num_layers);
  std::vector<int> order{0};
  for (int depth = 0; std::ssize(order) <= num_layers; ++depth) {
    for (int stage = 0; stage < stages; ++stage) {
      const LayerRange layers = stage_layers(num_layers, stages, stage);
      if (layers.begin + depth < layers.end) order.push_back(layers.begin + depth + 1);
    }
  }
  order.push_back(num_layers + 1);
  return order;
}

DevicePool devices_of(const Primitive& primitive, std::span<const Emu> units) {
  std::vector<DeviceId> devices;
  for (const std::vector<int>* ids : {&primitive.sources, &primitive.targets}) {
    for (const int id : *ids) {
      devices.insert(devices.end(), units[id].devices.begin(), units[id].devices.end());
    }
  }
  return DevicePool(std::move(devices));
}

std::string to_string(const Primitive& primitive, std::span<const Emu> units) {
  std::string text = to_string(primitive.kind) + " " + to_string(primitive.model_stage);
  for (const int id : primitive.sources) text += layout_and_devices(units[id]);
  if (!primitive.targets.empty()) text += " →";
  for (const int id : primitive.targets) text += layout_and_devices(units[id]);
  return text;
}

}  // namespace nereus
