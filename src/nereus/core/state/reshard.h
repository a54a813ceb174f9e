// From any collection of units of one model to any other: which box goes from which device where.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "nereus/core/state/emu.h"

namespace nereus {

// One box of one tensor, in all components of one part, copied from a source unit's device to a
// target unit's device. from == to is a copy inside a device: nothing crosses a link.
struct Move {
  StatePart part = StatePart::kWeights;
  int tensor = 0;  // index into schema.tensors
  Box box;         // global coordinates
  int source_unit = 0;
  DeviceId from;
  int target_unit = 0;
  DeviceId to;
  bool operator==(const Move&) const = default;
};
Bytes bytes_of(const Move& move, const StateSchema& schema);

struct ReshardPlan {
  // By layer, then tensor, part, target unit and rank: bounded memory.
  std::vector<Move> moves;
  Bytes moved;     // bytes that cross between devices
  Bytes resident;  // bytes that stay on their device
};

// Whether the device of a source unit still holds its shards of a layer (TensorSpec::layer); after
// a fault some are gone. Empty: everything is there.
using Holds = std::function<bool(int source_unit, DeviceId device, int layer)>;

// Covers every shard of every target unit exactly once with boxes that source units hold. A source
// on the same device is preferred, then one on the same host, then other devices, then host memory,
// and among equals the one with the least bytes to send so far; ties go to the lowest unit and
// rank, so equal input gives equal plans. Sources and targets may be of different model-stages
// (weight synchronisation). Throws Error(kInvalidInput) naming the part, tensor and box if no
// source holds a needed element.
ReshardPlan reshard(std::span<const Emu> sources, std::span<const Emu> targets,
                    const StateSchema& schema, const Holds& holds = {});

// What no source holds any more, a sentence for each box, for example "no unit holds the weights of
// lm_head.weight [0:4, 0:8]". Empty: the state is complete.
std::vector<std::string> missing_state(std::span<const Emu> sources, const StateSchema& schema,
                                       const Holds& holds = {});

// Bytes that cross from one device to another, by pair, sorted; copies inside a device are left
// out.
struct LinkLoad {
  DeviceId from;
  DeviceId to;
  Bytes bytes;
};
std::vector<LinkLoad> link_loads(const ReshardPlan& plan, const StateSchema& schema);

}  // namespace nereus
