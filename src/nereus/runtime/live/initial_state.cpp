#include "nereus/runtime/live/initial_state.h"

namespace nereus {

namespace {

TensorMap initial_weights(const ModelSource& source, const ModelSpec& spec, DType dtype,
                          uint64_t seed, ScoreHead head) {
  return source.random_weights ? random_model(spec, dtype, seed, head)
                               : read_model(source.path, spec, dtype, head);
}

}  // namespace

ScoreHead score_head(Role role) {
  return role == Role::kReward ? ScoreHead::kTrained : ScoreHead::kNew;
}

void load_models(Runtime& runtime, const Plan& plan, const LiveOptions& options) {
  for (const auto& [role, source] : options.models) {
    const TensorMap weights =
        initial_weights(source, runtime.model(role), options.dtype, options.seed, score_head(role));
    for (const StagePlan& stage : plan.stages) {
      if (stage.model_stage.role == role) runtime.create(stage, weights);
    }
  }
}

}  // namespace nereus
