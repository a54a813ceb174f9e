#include "nereus/app/driver/try_transition.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <unistd.h>

#include "nereus/core/base/error.h"
#include "nereus/runtime/data/hf_model.h"
#include "nereus/runtime/engine/transition_executor.h"

namespace nereus {

namespace {

void require_memory(const TransitionDag& dag) {
  Bytes needed;
  for (const auto& [device, peak] : dag.peak_bytes) needed += peak;
  const Bytes there(static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE));
  if (needed <= there) return;
  throw Error(ErrorCode::kInvalidInput,
              "running it needs " + to_string(needed) + " for all virtual devices together, but " +
                  "this machine has " + to_string(there) + "; leave out --run, or take a smaller " +
                  "model of the same shape");
}

}  // namespace

void make_random_state(StateStore& store, const StagePlan& stage, const StateSchema& schema,
                       uint64_t seed) {
  const EmuCollection units = units_of(stage);
  for (const Emu& unit : units) store.create(unit, schema);
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (const StateComponent& component : schema.components) {
    TensorMap tensors;
    for (const TensorSpec& tensor : schema.tensors) {
      tensors[tensor.name] =
          at::randn(tensor.shape, generator, at::dtype(scalar_type(component.dtype)));
    }
    for (const Emu& unit : units) store.scatter(unit, component.kind, tensors);
  }
}

TransitionReport try_transition(const TransitionDag& dag, const JobSpec& job,
                                const Cluster& cluster) {
  require_memory(dag);
  const WorkerPool workers(cluster, Backend{});
  StateStore store(workers);
  const auto schema_of = [&](ModelStage model_stage) {
    return state_schema(job.models.at(model_stage.role), model_stage);
  };
  for (size_t i = 0; i < dag.from.stages.size(); ++i) {
    const StagePlan& stage = dag.from.stages[i];
    make_random_state(store, stage, schema_of(stage.model_stage), /*seed=*/i);
  }
  for (const DeviceId device : workers.devices()) workers.at(device).memory().reset_peak();
  TransitionReport report = execute(dag, store, schema_of);
  if (report.failure) throw Error(ErrorCode::kOutOfMemory, report.failure->reason);
  return report;
}

}  // namespace nereus
