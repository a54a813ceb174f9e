#include <ATen/cuda/CUDAGraph.h>

#include "nereus/cuda/graph.h"

namespace nereus::cuda {

struct Graph::Recording {
  at::cuda::CUDAGraph graph;
};

Graph::Graph() = default;
Graph::~Graph() = default;

void Graph::record(const std::function<void()>& work) {
  auto recording = std::make_unique<Recording>();
  // Other threads go on using their own streams and devices meanwhile.
  recording->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  work();
  recording->graph.capture_end();
  graph_ = std::move(recording);
}

void Graph::replay() { graph_->graph.replay(); }

void Graph::clear() { graph_.reset(); }

}  // namespace nereus::cuda
