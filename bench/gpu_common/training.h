// Training passes of a Llama shape with random weights on the GPUs of this machine.
#pragma once

#include <memory>

#include "gpu_common/state.h"
#include "nereus/runtime/engine/unit_engine.h"
#include "nereus/runtime/rl/sample.h"

namespace nereus::bench {

struct TrainingCase {
  std::string shape = "8b";
  int tp = 1, dp = 1;
  bool update = false;  // with optimizer: fp32 master weights, moments, gradients
  bool recompute = false;
  int64_t sequences = 4, micro_batch = 4, length = 2048;  // per replica
  int repeats = 5;
};

// What tensors take of the first GPU now, and what the allocator has taken for them.
struct GpuMemory {
  Bytes allocated, reserved;
};
GpuMemory memory_now();

// Forward and backward of one rank, gradients in the weights' precision as in a plain PyTorch loop.
class GradientPass;

class Training final {
 public:
  explicit Training(const TrainingCase& parameters);
  ~Training();

  // Median of the repeats after two passes to warm up, and the memory that they took at most,
  // beyond what the first GPU held `before`.
  Json report(Bytes before = Bytes());

 private:
  double step();  // seconds
  void work(const Worker& worker);
  Bytes predicted_peak() const;

  TrainingCase case_;
  ModelSpec spec_;
  ModelStage stage_;
  Plan plan_;
  GpuState state_;
  CommunicatorCache communicators_;
  Experience experience_;
  std::vector<DeviceId> devices_;
  std::map<DeviceId, std::unique_ptr<UnitEngine>> engines_;   // if it updates
  std::map<DeviceId, std::unique_ptr<GradientPass>> passes_;  // if it does not
};

}  // namespace nereus::bench
