#include <algorithm>
#include <array>
#include <sstream>

#include "nereus/core/base/text.h"
#include "nereus/core/transition/transition_dag.h"

namespace nereus {

namespace {

// "tp1·pp1 [0:0] [0:1] → tp2·pp1 [0:0 0:1]": what follows kind and model-stage in the text.
std::string units_text(const Primitive& p, std::span<const Emu> units) {
  const std::string head = to_string(p.kind) + " " + to_string(p.model_stage) + " ";
  return to_string(p, units).substr(head.size());
}

template <size_t columns>
std::string aligned(const std::vector<std::array<std::string, columns>>& rows) {
  std::string text;
  for (const auto& row : rows) {
    for (size_t column = 0; column + 1 < columns; ++column) {
      size_t width = 0;
      for (const auto& other : rows) width = std::max(width, other[column].size());
      text += row[column] + std::string(width - row[column].size() + 2, ' ');
    }
    text += row.back() + "\n";
  }
  return text;
}

}  // namespace

std::string to_dot(const TransitionDag& dag) {
  std::ostringstream dot;
  dot << "digraph transition {\n  rankdir=LR;\n  node [shape=box];\n";
  for (const Primitive& p : dag.primitives) {
    dot << "  p" << p.id << " [label=\"" << p.id << " " << to_string(p.kind)
        << (p.chunked ? " (layer by layer)" : "") << "\\n"
        << to_string(p.model_stage) << "\\n"
        << units_text(p, dag.units) << "\"];\n";
  }
  for (const Edge& edge : dag.edges) {
    dot << "  p" << edge.from << " -> p" << edge.to
        << (edge.kind == EdgeKind::kResource ? " [style=dashed]" : "") << ";\n";
  }
  dot << "}\n";
  return dot.str();
}

std::string to_table(const TransitionDag& dag) {
  // Units last: the only column whose width in bytes differs from its width in characters.
  std::vector<std::array<std::string, 9>> rows{{"id", "kind", "model-stage", "moved", "resident",
                                                "start", "predicted", "waits for", "units"}};
  for (const Primitive& p : dag.primitives) {
    std::vector<std::string> waits;
    for (const Edge& edge : dag.edges) {
      if (edge.to == p.id) waits.push_back(std::to_string(edge.from));
    }
    rows.push_back({std::to_string(p.id), to_string(p.kind) + (p.chunked ? " by layers" : ""),
                    to_string(p.model_stage), to_string(p.bytes_moved), to_string(p.bytes_resident),
                    to_string(p.start), to_string(p.predicted),
                    waits.empty() ? "-" : join(waits, " "), units_text(p, dag.units)});
  }
  return aligned(rows) + "makespan " + to_string(dag.makespan) + " (predicted)\n";
}

}  // namespace nereus
