// One device's part in the passes of a unit: forward, training, generation.
#pragma once

#include <memory>
#include <vector>

#include "nereus/core/cost/op_class.h"
#include "nereus/runtime/engine/optimizer.h"
#include "nereus/runtime/engine/unit_comms.h"
#include "nereus/runtime/engine/unit_state.h"
#include "nereus/runtime/generation/generate.h"
#include "nereus/runtime/nn/pipeline.h"

namespace nereus {

struct UpdateResult {
  double grad_norm = 0;  // of the whole logical model, before clipping
};

// Called only on its device's worker; all ranks of a unit (for update(): of all units) must make
// the same calls. Holds a reference to the state, which must outlive it.
class UnitEngine final {
 public:
  UnitEngine(const ModelSpec& spec, UnitState& state, UnitComms comms);

  UnitState& state() { return state_; }
  const UnitComms& comms() const { return comms_; }
  at::Device device() const { return parameters_.begin()->second.device(); }
  // Where and in which precision losses are computed: fp32 for half-precision weights.
  at::TensorOptions loss_options() const;
  // True on the one rank of the unit whose outputs and metrics count.
  bool speaks() const { return stage_.is_last() && state_.rank().tp == 0; }

  std::vector<TokenOutputs> forward(const std::vector<MicroBatch>& micro_batches,
                                    const PassOptions& options);
  std::vector<GenerationResult> generate(const std::vector<GenerationRequest>& requests,
                                         const GenerationOptions& options);
  // One optimizer step: 1F1B over this unit's micro-batches (may be none), gradient
  // synchronisation, clipping, AdamW with the learning rate optimizer.lr. Throws Error(kNumeric) on
  // all ranks, before anything is changed, if the gradient norm is not finite.
  UpdateResult update(const std::vector<MicroBatch>& micro_batches, const PassOptions& options,
                      const LossFunction& loss, const OptimizerOptions& optimizer);

  // Wall time by class since the last call; `local` is the class of everything that is neither
  // communication nor optimizer.
  std::map<OpClass, Seconds> take_times(OpClass local, Seconds wall);

 private:
  // Gradient arenas, fp32 for half-precision weights; zeroed where nothing will overwrite them.
  std::vector<at::Tensor> make_gradients(bool overwritten) const;
  // Runs the schedule with the parameters' gradients accumulating into `gradients`, and sums them
  // over everyone who shares the parameters.
  void accumulate(const std::vector<at::Tensor>& gradients,
                  const std::vector<MicroBatch>& micro_batches, const PassOptions& options,
                  const LossFunction& loss);
  // True for tensors whose gradients on the ranks of one unit, or of two uses, make a sum.
  bool is_summed_in_unit(const TensorSpec& tensor) const;
  void sum_in_unit(const std::vector<at::Tensor>& gradients) const;
  double squared_norm(const std::vector<at::Tensor>& gradients) const;
  void apply(std::vector<at::Tensor>& gradients, double factor, const OptimizerOptions& optimizer);

  UnitState& state_;
  UnitComms comms_;
  ParameterMap parameters_;  // leaves that share the arenas' bytes
  DecoderStage stage_;
  cuda::Graph decode_step_;
  StreamTimer gradient_timer_;
  StreamTimer optimizer_timer_;
};

}  // namespace nereus
