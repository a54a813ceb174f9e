#include "nereus/core/planner/timeline.h"

#include <algorithm>
#include <array>
#include <bit>

namespace nereus {

Timeline::Timeline(const Workflow& workflow, std::span<const ModelStage> stages) {
  NEREUS_CHECK(workflow.nodes.size() <= kMostNodes && stages.size() <= kMostStages,
               "a workflow with so many passes");
  const auto bit = [&](ModelStage model_stage) {
    const auto found = std::ranges::find(stages, model_stage);
    NEREUS_CHECK(found != stages.end(), "unplaced " + to_string(model_stage));
    return StageSet{1} << (found - stages.begin());
  };
  const std::vector<NodeId> order = topological_order(workflow);
  const std::vector<std::vector<NodeId>> before = predecessors(workflow);
  for (const NodeId node : order) {
    Node entry{.index = index(node)};
    for (const ModelStage model_stage : busy_stages(workflow.at(node))) {
      entry.runs_on |= bit(model_stage);
    }
    for (const NodeId from : before[index(node)]) {
      entry.predecessors |= uint32_t{1} << (std::ranges::find(order, from) - order.begin());
    }
    nodes_.push_back(entry);
  }
}

Seconds Timeline::total(std::span<const Seconds> times, std::span<const StageSet> sharing) const {
  // A stage is busy until its last node so far has ended.
  std::array<double, kMostNodes> ends;
  std::array<double, kMostStages> busy_until{};
  double last = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    double start = 0;
    for (uint32_t rest = node.predecessors; rest != 0; rest &= rest - 1) {
      start = std::max(start, ends[std::countr_zero(rest)]);
    }
    for (StageSet mine = node.runs_on; mine != 0; mine &= mine - 1) {
      for (StageSet rest = sharing[std::countr_zero(mine)]; rest != 0; rest &= rest - 1) {
        start = std::max(start, busy_until[std::countr_zero(rest)]);
      }
    }
    ends[i] = start + times[node.index].count();
    for (StageSet mine = node.runs_on; mine != 0; mine &= mine - 1) {
      busy_until[std::countr_zero(mine)] = ends[i];
    }
    last = std::max(last, ends[i]);
  }
  return Seconds(last);
}

}  // namespace nereus
