#include "nereus/core/base/error.h"
#include "nereus/runtime/cuda/graph.h"

namespace nereus::cuda {

struct Graph::Recording {};

Graph::Graph() = default;
Graph::~Graph() = default;

void Graph::record(const std::function<void()>&) {
  throw Error(ErrorCode::kInternal, "this build of nereus has no CUDA");
}

void Graph::replay() {}

void Graph::clear() {}

}  // namespace nereus::cuda
