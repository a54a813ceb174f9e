#include "nereus/transition/primitive.h"

#include <array>

namespace nereus {

namespace {

constexpr std::array kAllKinds = {PrimitiveKind::kSplit, PrimitiveKind::kMerge,
                                  PrimitiveKind::kExtend, PrimitiveKind::kDestroy};

PrimitiveKind parse_kind(const std::string& text) {
  for (const PrimitiveKind kind : kAllKinds) {
    if (to_string(kind) == text) return kind;
  }
  throw Error(ErrorCode::kInvalidInput,
              "unknown primitive \"" + text + "\": use split, merge, extend or destroy");
}

std::string layout_and_devices(const Emu& unit) {
  // What follows the model-stage in the unit's text.
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
  }
  return "?";
}

bool consumes_sources(PrimitiveKind kind) { return kind != PrimitiveKind::kExtend; }

DevicePool devices_of(const Primitive& primitive) {
  std::vector<DeviceId> devices;
  for (const EmuCollection* units : {&primitive.sources, &primitive.targets}) {
    for (const Emu& unit : *units) {
      devices.insert(devices.end(), unit.devices.begin(), unit.devices.end());
    }
  }
  return DevicePool(std::move(devices));
}

std::string to_string(const Primitive& primitive) {
  std::string text = to_string(primitive.kind) + " " + to_string(primitive.model_stage);
  for (const Emu& unit : primitive.sources) text += layout_and_devices(unit);
  if (!primitive.targets.empty()) text += " →";
  for (const Emu& unit : primitive.targets) text += layout_and_devices(unit);
  return text;
}

void to_json(Json& j, const Primitive& primitive) {
  j = Json{{"id", primitive.id},
           {"kind", to_string(primitive.kind)},
           {"role", to_string(primitive.model_stage.role)},
           {"stage", to_string(primitive.model_stage.stage)},
           {"sources", primitive.sources},
           {"targets", primitive.targets},
           {"devices", devices_of(primitive).devices()},
           {"bytes_moved", primitive.bytes_moved},
           {"bytes_resident", primitive.bytes_resident},
           {"predicted_s", primitive.predicted},
           {"measured_s", nullptr}};
}

void from_json(const Json& j, Primitive& primitive) {
  const std::string where = "primitive";
  primitive.id = require<int>(j, "id", where);
  primitive.kind = parse_kind(require<std::string>(j, "kind", where));
  primitive.model_stage = {parse_role(require<std::string>(j, "role", where)),
                           parse_stage(require<std::string>(j, "stage", where))};
  primitive.sources = require<EmuCollection>(j, "sources", where);
  primitive.targets = require<EmuCollection>(j, "targets", where);
  primitive.bytes_moved = require<Bytes>(j, "bytes_moved", where);
  primitive.bytes_resident = require<Bytes>(j, "bytes_resident", where);
  primitive.predicted = require<Seconds>(j, "predicted_s", where);
}

}  // namespace nereus
