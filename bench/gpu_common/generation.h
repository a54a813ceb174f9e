// Generation of a Llama shape with random bf16 weights on the GPUs of this machine.
#pragma once

#include <memory>

#include "gpu_common/state.h"
#include "nereus/runtime/engine/unit_engine.h"

namespace nereus::bench {

struct GenerationCase {
  std::string shape = "8b";
  int tp = 1, dp = 1;
  int64_t sequences = 64, prompt = 512;  // per replica; tokens
  int64_t responses = 1;                 // of the sequences to each prompt
  std::vector<int64_t> limits;           // of new tokens, one per sequence; empty: all alike
  int64_t at_once = 0;                   // sequences in the batch at most; 0: all
};

class Generation final {
 public:
  explicit Generation(const GenerationCase& parameters);

  // Meets the shapes of prompts and of the full batch.
  void warm_up();
  // `new_tokens` for each sequence without a limit of its own, on all replicas at once. Prompts are
  // new each time.
  double seconds(int64_t new_tokens);

 private:
  double run(const std::vector<GenerationRequest>& requests, int64_t new_tokens);

  ModelSpec spec_;
  GenerationCase parameters_;
  Plan plan_;
  GpuState state_;
  CommunicatorCache communicators_;
  std::vector<DeviceId> devices_;
  std::map<DeviceId, std::unique_ptr<UnitEngine>> engines_;
};

}  // namespace nereus::bench
