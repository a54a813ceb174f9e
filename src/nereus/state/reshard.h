// From any collection of units of one model to any other: which box goes from which device where.
#pragma once

#include <span>
#include <vector>

#include "nereus/state/emu.h"

namespace nereus {

// One box of one tensor (all components of it), copied from a source unit's device to a target
// unit's device. from == to is a copy inside a device: nothing crosses a link.
struct Move {
  int tensor = 0;  // index into schema.tensors
  Box box;         // global coordinates
  int source_unit = 0;
  DeviceId from;
  int target_unit = 0;
  DeviceId to;
  bool operator==(const Move&) const = default;
};

struct ReshardPlan {
  std::vector<Move> moves;  // by layer, then tensor, then target unit and rank: bounded memory
  Bytes moved;              // bytes that cross between devices
  Bytes resident;           // bytes that stay on their device
};

// Covers every shard of every target unit exactly once with boxes that source units hold. A source
// on the same device is preferred, then one on the same host, then the device with the least bytes
// to send so far; ties go to the lowest unit and rank, so equal input gives equal plans. Sources
// and targets may be of different model-stages (weight synchronisation). Throws
// Error(kInvalidInput) naming the tensor and box if no source holds a needed element.
ReshardPlan reshard(std::span<const Emu> sources, std::span<const Emu> targets,
                    const StateSchema& schema);

// Bytes that cross from one device to another, by pair, sorted; copies inside a device are left
// out.
struct LinkLoad {
  DeviceId from;
  DeviceId to;
  Bytes bytes;
};
std::vector<LinkLoad> link_loads(const ReshardPlan& plan, const StateSchema& schema);

}  // namespace nereus
