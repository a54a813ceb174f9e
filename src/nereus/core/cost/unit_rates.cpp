#include "nereus/core/cost/unit_rates.h"

namespace nereus {
namespace {

// An eager operator costs this much besides its arithmetic. About 30 operators make a block;
// backward counts as two forwards.
constexpr double kOperatorSeconds = 5e-6;
constexpr double kOperatorsPerBlock = 30;
// The gap that an accelerator leaves before an operator of a recorded graph, in which a block's are
// but ten. On an H200, 8B at 64 and at 256 sequences, a decode step then ideally takes 0.9 and
// nearly all of what it was measured to take (bench/results/h200x1/generation_vllm.json):
// arithmetic and reading are added, although they go on side by side.
constexpr double kReplayedSeconds = 0.25e-6;

LinkUse tensor_link(const UnitView& unit, int pp_rank) {
  const int tp = unit.stage->layout.tp;
  return ring_link(*unit.cluster, count_by_host(unit.devices.subspan(size_t(pp_rank) * tp, tp)),
                   tp);
}

}  // namespace

double weight_size(const UnitView& unit) { return double(size_of(unit.model->weights).count()); }

int blocks_of(const UnitView& unit, int pp_rank) {
  const LayerRange layers =
      stage_layers(unit.model->spec.num_layers, unit.stage->layout.pp, pp_rank);
  return layers.end - layers.begin;
}

bool is_last(const UnitView& unit, int pp_rank) { return pp_rank + 1 == unit.stage->layout.pp; }

Operations arithmetic(const UnitView& unit, OpClass operation, double flops) {
  return {operation, flops / unit.cluster->device.flops / unit.share};
}

Operations traffic(const UnitView& unit, OpClass operation, double bytes) {
  return {operation, bytes / unit.cluster->device.memory_bandwidth / unit.share};
}

Operations launches(const UnitView& unit, double blocks) {
  return {OpClass::kLaunch, kOperatorSeconds * kOperatorsPerBlock * blocks / unit.share};
}

Operations replayed_launches(const UnitView& unit, double blocks) {
  if (!is_accelerator(unit.cluster->device)) return launches(unit, blocks);
  return {OpClass::kLaunch, kReplayedSeconds * kOperatorsPerBlock * blocks / unit.share};
}

Operations tensor_all_reduce(const UnitView& unit, int pp_rank, double bytes) {
  return all_reduce(bytes, unit.stage->layout.tp, tensor_link(unit, pp_rank));
}

Operations tensor_all_gather(const UnitView& unit, int pp_rank, double bytes) {
  return all_gather(bytes, unit.stage->layout.tp, tensor_link(unit, pp_rank));
}

Operations to_next_stage(const UnitView& unit, int pp_rank, double bytes) {
  if (is_last(unit, pp_rank)) return {};
  const int tp = unit.stage->layout.tp;
  const DeviceId from = unit.devices[size_t(pp_rank) * tp];
  const DeviceId to = unit.devices[size_t(pp_rank + 1) * tp];
  return send(bytes, link_between(*unit.cluster, from, to, tp));
}

}  // namespace nereus
