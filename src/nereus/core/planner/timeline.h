// The critical path of a step, for a search that asks for it thousands of times.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nereus/core/cost/step_latency.h"

namespace nereus {

// A set of model-stages: bit i is the i-th.
using StageSet = uint32_t;

// Says what predict_step() says of a plan, from the times of its passes and from which model-stages
// share devices.
class Timeline {
 public:
  static constexpr size_t kMostNodes = 16;
  static constexpr size_t kMostStages = 8;

  // `stages` numbers the model-stages.
  Timeline(const Workflow& workflow, std::span<const ModelStage> stages);

  // Ends of the last node: `times` by workflow node; `sharing[i]`: the stages that share a device
  // with stage i, itself included.
  Seconds total(std::span<const Seconds> times, std::span<const StageSet> sharing) const;

 private:
  struct Node {
    size_t index = 0;
    StageSet runs_on = 0;       // none: on the host
    uint32_t predecessors = 0;  // by place in nodes_
  };
  std::vector<Node> nodes_;  // in topological order
};

}  // namespace nereus
