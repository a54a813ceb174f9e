#include "nereus/core/workflow/capabilities.h"

#include <string>

#include "nereus/core/base/error.h"

namespace nereus {

void verify_runnable(const Plan& plan, const JobSpec& job) {
  for (const StagePlan& stage : plan.stages) {
    const auto refuse = [&](const std::string& what) {
      throw Error(ErrorCode::kInvalidInput, to_string(stage.model_stage) + ": " + what +
                                                " can be planned and moved, but not run yet");
    };
    if (stage.layout.zero > 1) refuse("zero " + std::to_string(stage.layout.zero));
    if (stage.layout.ep > 1) refuse("ep " + std::to_string(stage.layout.ep));
    if (stage.offload) refuse("offload");
    if (job.model(stage.model_stage.role).num_experts > 0) refuse("a mixture of experts");
  }
}

}  // namespace nereus
