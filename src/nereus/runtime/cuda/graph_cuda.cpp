#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAFunctions.h>

#include <array>
#include <exception>
#include <mutex>

#include "nereus/runtime/cuda/device.h"
#include "nereus/runtime/cuda/graph.h"

namespace nereus::cuda {

namespace {

// Every PyTorch graph enters itself into, and removes itself from, its GPU's random generator, a
// list that nobody else guards: devices that share a GPU take turns.
std::mutex& registration(int gpu) {
  static std::array<std::mutex, C10_COMPILE_TIME_MAX_GPUS> mutexes;
  return mutexes.at(gpu);
}

// More than the temporaries of what is recorded take, or nearly.
constexpr Bytes kRoom(int64_t{2} << 30);

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

  // Other threads go on using their own streams and devices meanwhile.
  void begin(at::cuda::MempoolId_t pool) {
    graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
  }
};

Graph::Graph() = default;

Graph::~Graph() {
  clear();
  if (!memory_) return;
  const std::lock_guard lock(registration(memory_->gpu));
  memory_.reset();
}

void Graph::record(const std::function<void()>& work) {
  auto recording = std::make_unique<Recording>();
  std::mutex& turn = registration(recording->gpu);
  {
    const std::lock_guard lock(turn);
    if (!memory_) {
      if (obtainable_memory(recording->gpu) < kRoom) release_unused_memory();
      auto memory = std::make_unique<Recording>();
      memory->begin({0, 0});
      at::zeros({1}, at::kCUDA);
      memory->graph.capture_end();
      memory_ = std::move(memory);
    }
    recording->begin(memory_->graph.pool());
  }
  try {
    work();  // may wait for ranks that have to record first
  } catch (...) {
    const std::lock_guard lock(turn);
    end_failed(recording->graph);
    recording.reset();
    throw;
  }
  const std::lock_guard lock(turn);
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
