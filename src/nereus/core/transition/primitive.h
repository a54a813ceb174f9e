// The primitives that change a collection of units, and the table of units they speak of.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "nereus/core/state/emu.h"

namespace nereus {

enum class PrimitiveKind {
  kSplit,    // source → targets, smaller units on the same devices; frees the source
  kMerge,    // sources → target, one larger unit on their devices; frees the sources
  kExtend,   // target, a new replica, copied from sources (which stay)
  kDestroy,  // frees its source
  kRoute,    // fused: straight from the boxes of the sources to those of the targets
};
std::string to_string(PrimitiveKind kind);  // "split", "merge", "extend", "destroy", "route"

// Units are indices into TransitionDag::units.
struct Primitive {
  int id = 0;
  PrimitiveKind kind = PrimitiveKind::kDestroy;
  ModelStage model_stage;
  std::vector<int> sources;  // read; of a Destroy: the unit it frees
  std::vector<int> targets;  // made
  std::vector<int> frees;    // those of the sources that are gone afterwards
  // Layer by layer, in chunk_order() on every rank: a layer of the targets is allocated and filled,
  // then that layer of `frees` is released, then the next one moves. Peak memory is then that of
  // the larger side plus about one layer, not the sum of both.
  bool chunked = false;
  Bytes bytes_moved;     // between devices
  Bytes bytes_resident;  // taken over or copied within a device
  Seconds set_up;        // ideal: allocating, releasing, waking devices
  Seconds transfer;      // ideal: moving the bytes at the links' full speed
  Seconds start;         // predicted, counted from the beginning of the transition
  Seconds predicted;     // duration: both ideals, calibrated
  bool operator==(const Primitive&) const = default;
};

// The chunks (sharding.h) of a model in the order in which a chunked primitive moves them from
// units of pp `from` stages to units of pp `to`: the stages take turns, so that no device gets all
// its layers before it gives any. Embedding first, head last.
std::vector<int> chunk_order(int num_layers, int from, int to);
// The devices of all its units, sorted.
DevicePool devices_of(const Primitive& primitive, std::span<const Emu> units);
// "merge actor/training tp1·pp1 [0:0] [0:1] → tp2·pp1 [0:0 0:1]"
std::string to_string(const Primitive& primitive, std::span<const Emu> units);

}  // namespace nereus
