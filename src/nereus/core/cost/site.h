// What the predictions of a placed model-stage need over and over, whatever its micro-batch.
#pragma once

#include <vector>

#include "nereus/core/cost/collectives.h"
#include "nereus/core/cost/shape.h"

namespace nereus {

// Elements of the two parts of the state that each rank of a unit holds, in rank order.
struct StateElements {
  std::vector<int64_t> weights;
  std::vector<int64_t> optimizer;
};
StateElements state_elements(const ModelSpec& spec, Layout layout);

// Bytes of an element of each component of a model-stage's state; 0: it has none. As
// state_schema().
struct StateWidths {
  int64_t weights = 0;
  int64_t master = 0;
  int64_t moments = 0;  // both
};
StateWidths state_widths(DType weights, Stage stage);

struct Site {
  // Units whose devices are spread alike over hosts that are alike work alike: one of each kind.
  struct Unit {
    std::vector<DeviceId> devices;
    double share = 1;  // of peak speed: devices that share cores slow each other down
  };
  std::vector<Unit> units;  // by their first place in the stage
  // What the all-reduce of the gradient gets, by place in the unit: the ranks that hold the same
  // part, of all units and all ZeRO ranks in them, form a ring.
  std::vector<LinkUse> gradient_links;
  StateElements elements;
};
Site site_of(const StagePlan& stage, StateElements elements, const Cluster& cluster);
// With the elements of the job's model.
Site site_of(const StagePlan& stage, const JobSpec& job, const Cluster& cluster);

}  // namespace nereus
