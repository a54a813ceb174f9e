#include <algorithm>
#include <array>

#include "nereus/core/transition/transition_dag.h"

namespace nereus {

namespace {

constexpr std::array kAllKinds = {PrimitiveKind::kSplit, PrimitiveKind::kMerge,
                                  PrimitiveKind::kExtend, PrimitiveKind::kDestroy,
                                  PrimitiveKind::kRoute};

PrimitiveKind parse_kind(const std::string& text) {
  for (const PrimitiveKind kind : kAllKinds) {
    if (to_string(kind) == text) return kind;
  }
  throw Error(ErrorCode::kInvalidInput,
              "unknown primitive \"" + text + "\": use split, merge, extend, destroy or route");
}

std::string to_string(EdgeKind kind) { return kind == EdgeKind::kState ? "state" : "resource"; }

EdgeKind parse_edge_kind(const std::string& text) {
  if (text == "state") return EdgeKind::kState;
  if (text == "resource") return EdgeKind::kResource;
  throw Error(ErrorCode::kInvalidInput,
              "unknown edge kind \"" + text + "\": use state or resource");
}

EmuCollection chosen(std::span<const Emu> units, const std::vector<int>& ids) {
  EmuCollection collection;
  for (const int id : ids) collection.push_back(units[id]);
  return collection;
}

// The numbers of units in the table, which grows by those that are new.
std::vector<int> numbered(const EmuCollection& collection, EmuCollection& units) {
  std::vector<int> ids;
  for (const Emu& unit : collection) {
    auto found = std::ranges::find(units, unit);
    if (found == units.end()) found = units.insert(units.end(), unit);
    ids.push_back(static_cast<int>(found - units.begin()));
  }
  return ids;
}

Primitive parse_primitive(const Json& j, EmuCollection& units) {
  const std::string where = "primitive";
  Primitive primitive;
  primitive.id = require<int>(j, "id", where);
  primitive.kind = parse_kind(require<std::string>(j, "kind", where));
  primitive.model_stage = {parse_role(require<std::string>(j, "role", where)),
                           parse_stage(require<std::string>(j, "stage", where))};
  primitive.sources = numbered(require<EmuCollection>(j, "sources", where), units);
  primitive.targets = numbered(require<EmuCollection>(j, "targets", where), units);
  primitive.frees = numbered(require<EmuCollection>(j, "frees", where), units);
  primitive.chunked = require<bool>(j, "chunked", where);
  primitive.bytes_moved = require<Bytes>(j, "bytes_moved", where);
  primitive.bytes_resident = require<Bytes>(j, "bytes_resident", where);
  primitive.set_up = require<Seconds>(j, "set_up_s", where);
  primitive.transfer = require<Seconds>(j, "transfer_s", where);
  primitive.start = require<Seconds>(j, "start_s", where);
  primitive.predicted = require<Seconds>(j, "predicted_s", where);
  return primitive;
}

}  // namespace

Json primitive_json(const Primitive& primitive, std::span<const Emu> units) {
  return Json{{"id", primitive.id},
              {"kind", to_string(primitive.kind)},
              {"role", to_string(primitive.model_stage.role)},
              {"stage", to_string(primitive.model_stage.stage)},
              {"sources", chosen(units, primitive.sources)},
              {"targets", chosen(units, primitive.targets)},
              {"frees", chosen(units, primitive.frees)},
              {"devices", devices_of(primitive, units).devices()},
              {"chunked", primitive.chunked},
              {"bytes_moved", primitive.bytes_moved},
              {"bytes_resident", primitive.bytes_resident},
              {"set_up_s", primitive.set_up},
              {"transfer_s", primitive.transfer},
              {"start_s", primitive.start},
              {"predicted_s", primitive.predicted},
              {"measured_s", nullptr}};
}

void to_json(Json& j, const Edge& edge) {
  j = Json{{"from", edge.from}, {"to", edge.to}, {"kind", to_string(edge.kind)}};
}

void from_json(const Json& j, Edge& edge) {
  const std::string where = "transition edge";
  edge.from = require<int>(j, "from", where);
  edge.to = require<int>(j, "to", where);
  edge.kind = parse_edge_kind(require<std::string>(j, "kind", where));
}

void to_json(Json& j, const TransitionDag& dag) {
  Json primitives = Json::array();
  for (const Primitive& p : dag.primitives) primitives.push_back(primitive_json(p, dag.units));
  Json peak = Json::object();
  for (const auto& [device, bytes] : dag.peak_bytes) peak[to_string(device)] = bytes;
  j = Json{{"from", dag.from},
           {"to", dag.to},
           {"primitives", std::move(primitives)},
           {"edges", dag.edges},
           {"peak_bytes", std::move(peak)},
           {"makespan_s", dag.makespan},
           {"connecting_s", dag.connecting}};
}

void from_json(const Json& j, TransitionDag& dag) {
  const std::string where = "transition";
  dag = {};
  dag.from = require<Plan>(j, "from", where);
  dag.to = require<Plan>(j, "to", where);
  for (const Plan* plan : {&dag.from, &dag.to}) {
    for (const StagePlan& stage : plan->stages) numbered(units_of(stage), dag.units);
  }
  for (const Json& primitive : require<Json>(j, "primitives", where)) {
    dag.primitives.push_back(parse_primitive(primitive, dag.units));
  }
  dag.edges = require<std::vector<Edge>>(j, "edges", where);
  for (const auto& [device, bytes] :
       require<std::map<std::string, Bytes>>(j, "peak_bytes", where)) {
    dag.peak_bytes[parse_device(device)] = bytes;
  }
  dag.makespan = require<Seconds>(j, "makespan_s", where);
  dag.connecting = require<Seconds>(j, "connecting_s", where);
}

}  // namespace nereus
