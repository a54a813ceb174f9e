// A transition: primitives of all model-stages in one admissible order, with its costs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nereus/core/transition/primitive.h"

namespace nereus {

enum class EdgeKind {
  kState,     // a unit is made before it is used, and read before it is freed
  kResource,  // an acquisition waits for the release that makes room for it
};

struct Edge {
  int from = 0;  // primitive ids
  int to = 0;
  EdgeKind kind = EdgeKind::kState;
  bool operator==(const Edge&) const = default;
};

struct TransitionDag {
  Plan from;
  Plan to;
  EmuCollection units;                // of both plans and in between, each once
  std::vector<Primitive> primitives;  // in a topological order; ids 0 … n-1
  std::vector<Edge> edges;            // from < to; both ends share a device
  // Upper bound over every execution that the edges allow, of logical state and staging buffers.
  std::map<DeviceId, Bytes> peak_bytes;
  // Predicted: independent primitives run at once, a device or a NIC's lane does one at a time.
  Seconds makespan;
  // Of that, making the communicators that reach other hosts, all at once before the primitives.
  Seconds connecting;

  bool empty() const { return primitives.empty(); }
  bool operator==(const TransitionDag&) const = default;
};

// Throws Error(kInternal) if the DAG is cyclic, uses a unit before it exists or after it was freed
// (in the order given or in another one that the edges allow), drops the last complete copy of a
// model-stage, lets two units of a model-stage own one device (but for a hand-over: the only copy
// and what is copied from it), or does not end in exactly the units of `to`.
void verify(const TransitionDag& dag);

// {"from", "to", "primitives": [{"id", "kind", "role", "stage", "sources", "targets", "frees",
// "devices", "chunked", "bytes_moved", "bytes_resident", "set_up_s", "transfer_s", "start_s",
// "predicted_s", "measured_s"}], "edges": [{"from", "to", "kind"}], "peak_bytes": {…},
// "makespan_s", "connecting_s"} and back. Units are written in full. Whoever has run a primitive
// puts a number in the place of measured_s' null.
void to_json(Json& j, const Edge& edge);
void from_json(const Json& j, Edge& edge);
Json primitive_json(const Primitive& primitive, std::span<const Emu> units);
void to_json(Json& j, const TransitionDag& dag);
void from_json(const Json& j, TransitionDag& dag);
// Graphviz.
std::string to_dot(const TransitionDag& dag);
// A table for people: id, kind, model-stage, bytes, predicted seconds, units.
std::string to_table(const TransitionDag& dag);

}  // namespace nereus
