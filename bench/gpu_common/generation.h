// Generation of a Llama shape with random bf16 weights on the GPUs of this machine.
#pragma once

#include <memory>

#include "gpu_common/state.h"
#include "nereus/runtime/engine/unit_engine.h"

namespace nereus::bench {

struct GenerationCase {
  std::string shape = "8b";
  int tp = 1, dp = 1;
  int64_t sequences = 64, prompt = 512;  // per replica
};

class Generation final {
 public:
  explicit Generation(const GenerationCase& parameters);

  // `new_tokens` for each sequence, on all replicas at once.
  double seconds(int64_t new_tokens);

 private:
  Plan plan_;
  GpuState state_;
  CommunicatorCache communicators_;
  std::vector<DeviceId> devices_;
  std::map<DeviceId, std::unique_ptr<UnitEngine>> engines_;
  std::vector<GenerationRequest> requests_;
};

}  // namespace nereus::bench
