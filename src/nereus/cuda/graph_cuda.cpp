#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>

#include <array>
#include <exception>
#include <mutex>

#include "nereus/cuda/graph.h"

namespace nereus::cuda {

namespace {

// Every PyTorch graph enters itself into, and removes itself from, its GPU's random generator, a
// list that nobody else guards: devices that share a GPU take turns.
std::mutex& registration(int gpu) {
  static std::array<std::mutex, C10_COMPILE_TIME_MAX_GPUS> mutexes;
  return mutexes.at(gpu);
}

// Else whatever comes next on the stream would be recorded, too.
void end_failed(at::cuda::CUDAGraph& graph) {
  try {
    graph.capture_end();
  } catch (const std::exception&) {
    // What made the recording fail says more.
  }
}

}  // namespace

struct Graph::Recording {
  int gpu = c10::cuda::current_device();
  at::cuda::CUDAGraph graph;
};

Graph::Graph() = default;
Graph::~Graph() { clear(); }

void Graph::record(const std::function<void()>& work) {
  auto recording = std::make_unique<Recording>();
  const std::lock_guard lock(registration(recording->gpu));
  // Other threads go on using their own streams and devices meanwhile.
  recording->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  try {
    work();
  } catch (...) {
    end_failed(recording->graph);
    throw;
  }
  recording->graph.capture_end();
  graph_ = std::move(recording);
}

void Graph::replay() { graph_->graph.replay(); }

void Graph::clear() {
  if (!graph_) return;
  const std::lock_guard lock(registration(graph_->gpu));
  graph_.reset();
}

}  // namespace nereus::cuda
