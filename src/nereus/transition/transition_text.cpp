#include <algorithm>
#include <array>
#include <sstream>

#include "nereus/transition/transition_dag.h"

namespace nereus {

namespace {

std::string to_string(EdgeKind kind) { return kind == EdgeKind::kState ? "state" : "resource"; }

EdgeKind parse_edge_kind(const std::string& text) {
  if (text == "state") return EdgeKind::kState;
  if (text == "resource") return EdgeKind::kResource;
  throw Error(ErrorCode::kInvalidInput,
              "unknown edge kind \"" + text + "\": use state or resource");
}

// "tp1·pp1 [0:0] [0:1] → tp2·pp1 [0:0 0:1]": what follows kind and model-stage in the primitive's
// text.
std::string units_text(const Primitive& p) {
  const std::string head = to_string(p.kind) + " " + to_string(p.model_stage) + " ";
  return to_string(p).substr(head.size());
}

}  // namespace

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
  Json peak = Json::object();
  for (const auto& [device, bytes] : dag.peak_bytes) peak[to_string(device)] = bytes;
  j = Json{{"from", dag.from},
           {"to", dag.to},
           {"primitives", dag.primitives},
           {"edges", dag.edges},
           {"peak_bytes", std::move(peak)},
           {"makespan_s", dag.makespan}};
}

void from_json(const Json& j, TransitionDag& dag) {
  const std::string where = "transition";
  dag.from = require<Plan>(j, "from", where);
  dag.to = require<Plan>(j, "to", where);
  dag.primitives = require<std::vector<Primitive>>(j, "primitives", where);
  dag.edges = require<std::vector<Edge>>(j, "edges", where);
  dag.peak_bytes.clear();
  const auto peak = require<std::map<std::string, Bytes>>(j, "peak_bytes", where);
  for (const auto& [device, bytes] : peak) {
    dag.peak_bytes[parse_device(device)] = bytes;
  }
  dag.makespan = require<Seconds>(j, "makespan_s", where);
}

std::string to_dot(const TransitionDag& dag) {
  std::ostringstream dot;
  dot << "digraph transition {\n  rankdir=LR;\n  node [shape=box];\n";
  for (const Primitive& p : dag.primitives) {
    dot << "  p" << p.id << " [label=\"" << p.id << " " << to_string(p.kind) << "\\n"
        << to_string(p.model_stage) << "\\n"
        << units_text(p) << "\"];\n";
  }
  for (const Edge& edge : dag.edges) {
    dot << "  p" << edge.from << " -> p" << edge.to
        << (edge.kind == EdgeKind::kResource ? " [style=dashed]" : "") << ";\n";
  }
  dot << "}\n";
  return dot.str();
}

std::string to_table(const TransitionDag& dag) {
  using Row = std::array<std::string, 7>;
  // Units last: the only column whose width in bytes differs from its width in characters.
  std::vector<Row> rows{{"id", "kind", "model-stage", "moved", "resident", "predicted", "units"}};
  for (const Primitive& p : dag.primitives) {
    rows.push_back({std::to_string(p.id), to_string(p.kind), to_string(p.model_stage),
                    to_string(p.bytes_moved), to_string(p.bytes_resident), to_string(p.predicted),
                    units_text(p)});
  }
  std::string table;
  for (const Row& row : rows) {
    for (size_t column = 0; column + 1 < row.size(); ++column) {
      size_t width = 0;
      for (const Row& other : rows) width = std::max(width, other[column].size());
      table += row[column] + std::string(width - row[column].size() + 2, ' ');
    }
    table += row.back() + "\n";
  }
  return table + "makespan " + to_string(dag.makespan) + "\n";
}

}  // namespace nereus
