#include "coordination/trial_state.h"

#include <ATen/ATen.h>

#include "nereus/runtime/data/hf_model.h"

namespace nereus::bench {

TrialState::TrialState(const Plan& plan, const JobSpec& job, const WorkerPool& workers)
    : job_(job), store_(workers) {
  for (const StagePlan& stage : plan.stages) {
    const StateSchema stage_schema = schema(stage.model_stage);
    const EmuCollection units = units_of(stage);
    for (const Emu& unit : units) store_.create(unit, stage_schema);
    for (const StateComponent& component : stage_schema.components) {
      TensorMap tensors;
      for (const TensorSpec& tensor : stage_schema.tensors) {
        tensors[tensor.name] = at::randn(tensor.shape, at::dtype(scalar_type(component.dtype)));
      }
      for (const Emu& unit : units) store_.scatter(unit, component.kind, tensors);
    }
    hashes_[stage.model_stage] = store_.hashes(units.front());
  }
}

StateSchema TrialState::schema(ModelStage model_stage) const {
  return state_schema(job_.models.at(model_stage.role), model_stage);
}

bool TrialState::is_intact(const Plan& plan) const {
  for (const StagePlan& stage : plan.stages) {
    for (const Emu& unit : units_of(stage)) {
      if (!store_.contains(unit) || store_.hashes(unit) != hashes_.at(stage.model_stage)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace nereus::bench
