#include <random>
#include <thread>

#include "coordination/migration.h"
#include "coordination/trial_state.h"
#include "nereus/core/base/random.h"
#include "nereus/core/transition/compile.h"
#include "nereus/runtime/engine/stopwatch.h"
#include "nereus/runtime/engine/transition_executor.h"

namespace nereus::bench {

namespace {

// Every device begins its share of a primitive up to this much late, at random.
constexpr double kLatestStart = 0.002;  // seconds

void start_late(const TransitionEvent& event, uint64_t seed) {
  if (event.what != TransitionEvent::What::kStarted) return;
  const RandomKey key{seed, uint64_t(event.primitive),
                      uint64_t(event.device.host) << 32 | uint32_t(event.device.index)};
  std::this_thread::sleep_for(std::chrono::duration<double>(kLatestStart * uniform(key)));
}

}  // namespace

Outcome migrate_coordinated(const Trial& trial, const JobSpec& job, const Cluster& cluster) {
  const WorkerPool workers(cluster, Backend{});
  TrialState state(trial.from, job, workers);
  Outcome outcome;
  const Stopwatch watch;
  const auto dag = compile_transition(trial.from, trial.to, job, cluster, Calibration());
  if (!dag) {
    outcome.failure = dag.error();
    return outcome;
  }
  outcome.resource_edges =
      static_cast<int>(std::ranges::count(dag->edges, EdgeKind::kResource, &Edge::kind));
  const uint64_t seed = trial.order_seeds.front();
  const TransitionReport report = execute(
      *dag, state.store(), [&](ModelStage model_stage) { return state.schema(model_stage); },
      {.verify = false, .on_event = [seed](const TransitionEvent& e) { start_late(e, seed); }});
  outcome.elapsed = watch.elapsed();
  if (report.failure) outcome.failure = report.failure->reason;
  outcome.completed = !report.failure && state.is_intact(trial.to);
  if (!outcome.completed && outcome.failure.empty()) outcome.failure = "state differs";
  return outcome;
}

}  // namespace nereus::bench
