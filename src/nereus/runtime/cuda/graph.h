// Work on a GPU that is recorded once and replayed with one call.
#pragma once

#include <functional>
#include <memory>

namespace nereus::cuda {

// Used by one thread, on one current stream, which must not be the default one. Replays read and
// write the very memory of the recording, which the next recording uses again: PyTorch keeps what a
// recording had to itself for nobody else. Without CUDA record() throws Error(kInternal).
class Graph final {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  bool recorded() const { return graph_ != nullptr; }
  // What `work` enqueues is recorded, not done. It must have run once before (libraries prepare at
  // first use), and must not wait for the device.
  void record(const std::function<void()>& work);
  void replay();
  void clear();  // forgets the recording

 private:
  struct Recording;
  std::unique_ptr<Recording> memory_;  // of next to nothing: while it is there, so is the memory
  std::unique_ptr<Recording> graph_;
};

}  // namespace nereus::cuda
