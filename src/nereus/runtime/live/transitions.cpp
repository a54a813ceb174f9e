#include "nereus/runtime/live/transitions.h"

#include <algorithm>

#include "nereus/core/base/error.h"
#include "nereus/runtime/engine/stopwatch.h"

namespace nereus {

namespace {

Plan without_generation(Plan plan) {
  std::erase_if(plan.stages, [](const StagePlan& stage) {
    return stage.model_stage.stage == Stage::kGeneration;
  });
  return plan;
}

}  // namespace

std::function<StateSchema(ModelStage)> Transitions::schemas() const {
  return [this](ModelStage model_stage) { return runtime_.schema(model_stage); };
}

ExecuteOptions Transitions::execute_options() const {
  return {.verify = options_.verify_transitions,
          .expected = hashes_,
          .link_bandwidth = options_.link_bandwidth,
          .on_event = options_.on_transition_event};
}

Seconds Transitions::remember(const Plan& plan, const WorkerPool& workers) {
  const Stopwatch timer;
  hashes_.clear();
  if (options_.verify_transitions) hashes_ = hash_stages(plan, runtime_.store(), workers);
  return timer.elapsed();
}

void Transitions::drop_lost(const TransitionReport& report) {
  if (!report.failure) return;
  for (const DeviceId device : report.failure->lost) {
    lost_.insert(device);
    runtime_.store().drop(device);
  }
}

TransitionReport Transitions::apply(const TransitionDag& dag) {
  const Stopwatch pause;
  runtime_.release();
  const Seconds hashing = remember(dag.from, runtime_.store().workers());
  runtime_.reset_peaks();
  runtime_.prepare(dag.to);
  TransitionReport report = execute(dag, runtime_.store(), schemas(), execute_options());
  report.verification += hashing;
  drop_lost(report);
  if (report.failure) return report;
  runtime_.adopt(dag.to);
  runtime_.synchronise_generation();
  report.exposed = report.measured;
  report.settling = pause.elapsed() - report.exposed;
  return report;
}

TransitionReport Transitions::recover(const Plan& to) {
  runtime_.release();
  runtime_.reset_peaks();
  // Generation weights are a copy of the training weights.
  auto report =
      nereus::recover(without_generation(to), runtime_.store(), schemas(), execute_options());
  if (!report) {
    throw Error(ErrorCode::kAborted, report.error());
  }
  drop_lost(*report);
  if (!report->failure) runtime_.remake_generation(to);
  return *std::move(report);
}

void Transitions::start(TransitionDag dag) {
  runtime_.release_idle();
  if (!second_workers_) second_workers_ = runtime_.store().workers().beside();
  target_ = dag.to;
  runtime_.prepare(dag.to);
  running_ = std::async(std::launch::async, [this, dag = std::move(dag)] {
    const Seconds hashing = remember(without_generation(dag.from), *second_workers_);
    ExecuteOptions options = execute_options();
    options.workers = &*second_workers_;
    TransitionReport report = execute(dag, runtime_.store(), schemas(), options);
    report.verification += hashing;
    return report;
  });
}

TransitionReport Transitions::join() {
  const Stopwatch timer;
  TransitionReport report = running_.get();
  report.exposed = std::min(timer.elapsed(), report.measured);
  if (report.failure) runtime_.release();  // generation's engines use state that may be gone
  drop_lost(report);
  if (!report.failure) runtime_.adopt(target_);
  report.settling = timer.elapsed() - report.exposed;
  return report;
}

}  // namespace nereus
