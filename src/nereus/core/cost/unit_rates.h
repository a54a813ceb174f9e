// How fast one unit of a plan works: ideal times of FLOPs, bytes and messages on its devices.
#pragma once

#include <span>

#include "nereus/core/cost/site.h"

namespace nereus {

// One unit at work: what it runs and at which rates.
struct UnitView {
  const StagePlan* stage = nullptr;
  std::span<const DeviceId> devices;  // of the unit, in rank order
  const ModelUse* model = nullptr;
  const StateElements* elements = nullptr;
  const JobSpec* job = nullptr;
  const Cluster* cluster = nullptr;
  double share = 1;  // of peak speed: devices that share cores slow each other down
};

double weight_size(const UnitView& unit);  // bytes of one element
int blocks_of(const UnitView& unit, int pp_rank);
bool is_last(const UnitView& unit, int pp_rank);

// Local work of one device.
Operations arithmetic(const UnitView& unit, OpClass operation, double flops);
Operations traffic(const UnitView& unit, OpClass operation, double bytes);
// The fixed costs of the operators of so many blocks: what small models and single-token steps are
// bound by.
Operations launches(const UnitView& unit, double blocks);
// The same of a step that comes again and again: accelerators replay a graph of it, as all engines
// for generation do.
Operations replayed_launches(const UnitView& unit, double blocks);

// Between the TP ranks of a pipeline stage; `bytes` on each.
Operations tensor_all_reduce(const UnitView& unit, int pp_rank, double bytes);
Operations tensor_all_gather(const UnitView& unit, int pp_rank, double bytes);
// To the next pipeline stage; the last one sends nothing. All TP ranks send at once.
Operations to_next_stage(const UnitView& unit, int pp_rank, double bytes);

}  // namespace nereus
