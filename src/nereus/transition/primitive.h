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
};

// True if the primitive frees its sources when it is done.
bool consumes_sources(PrimitiveKind kind);

void to_json(Json& j, const Primitive& primitive);
void from_json(const Json& j, Primitive& primitive);

}  // namespace nereus
