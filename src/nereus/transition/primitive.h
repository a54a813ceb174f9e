// The four primitives that change a collection of units.
#pragma once

#include <string>
#include <vector>

#include "nereus/state/emu.h"

namespace nereus {

enum class PrimitiveKind {
  kSplit,    // sources[0] → targets, smaller units on the same devices; consumes the source
  kMerge,    // sources → targets[0], one larger unit on their devices; consumes the sources
  kExtend,   // targets[0], a new replica, copied from sources (which stay)
  kDestroy,  // sources[0] is freed
};
std::string to_string(PrimitiveKind kind);  // "split", "merge", "extend", "destroy"

struct Primitive {
  int id = 0;
  PrimitiveKind kind = PrimitiveKind::kDestroy;
  ModelStage model_stage;
  EmuCollection sources;
  EmuCollection targets;
  Bytes bytes_moved;     // between devices
  Bytes bytes_resident;  // taken over or copied within a device
  Seconds predicted;
  bool operator==(const Primitive&) const = default;
};

// True if the primitive frees its sources when it is done.
bool consumes_sources(PrimitiveKind kind);
// The devices of all its units.
DevicePool devices_of(const Primitive& primitive);
// "merge actor/training tp1·pp1 [0:0] [0:1] → tp2·pp1 [0:0 0:1]"
std::string to_string(const Primitive& primitive);

// {"id", "kind", "role", "stage", "sources", "targets", "devices", "bytes_moved", "bytes_resident",
// "predicted_s", "measured_s"}; whoever has run it puts a number in the place of measured_s' null.
void to_json(Json& j, const Primitive& primitive);
void from_json(const Json& j, Primitive& primitive);

}  // namespace nereus
