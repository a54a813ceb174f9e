#include "plan_search/decision.h"

#include <ctime>

#include "common/jobs.h"
#include "common/record.h"
#include "nereus/core/controller/controller.h"
#include "nereus/core/cost/step_latency.h"
#include "nereus/core/planner/search.h"
#include "nereus/core/transition/compile.h"

namespace nereus::bench {

namespace {

// What runs before the decision: everything on the first half of the devices.
Plan half_plan(std::span<const DeviceId> devices) {
  const auto half = devices.first(devices.size() / 2);
  return plan_of({stage_on(kActorGeneration, {.tp = 2}, half),
                  stage_on(kActorTraining, {.tp = 4, .pp = 2}, half),
                  stage_on(kCriticTraining, {.tp = 4, .pp = 2}, half),
                  stage_on(kReferenceInference, {.tp = 2}, half)});
}

// A step under `plan` that took what it ideally takes, after which all devices are there.
StepReport report_of(const Plan& plan, const JobSpec& job, const Cluster& cluster) {
  StepReport report;
  for (const NodeId id : node_ids(job.workflow)) {
    const WorkflowNode& node = job.workflow.at(id);
    Span span{.node = id,
              .name = node.name,
              .start = report.step_s,
              .by_class = ideal_node_times(node, plan, job, cluster)};
    for (const auto& [op_class, time] : span.by_class) report.step_s += time;
    span.end = report.step_s;
    report.spans.push_back(std::move(span));
  }
  report.workload = report.next_workload = job.workload;
  report.next_pool = all_devices(cluster);
  return report;
}

// The steps of a decision, one at a time, as the controller takes them.
class Parts {
 public:
  Parts(const Controller& controller, const Plan& from, const Cluster& cluster,
        const PlannerOptions& planner)
      : job_(controller.job()),
        calibration_(controller.calibration()),
        from_(from),
        cluster_(cluster),
        planner_(planner) {}

  void run() {
    const DevicePool pool = all_devices(cluster_);
    std::optional<Problem> problem;
    std::optional<PlanChoice> choice;
    Plan to;
    costing_.push_back(
        seconds([&] { problem.emplace(job_, cluster_, pool, calibration_, planner_, &from_); }));
    search_.push_back(seconds([&] { choice = choose_plan(*problem, planner_).value(); }));
    placement_.push_back(seconds([&] { to = placed(from_, choice->best.plan, job_, cluster_); }));
    compilation_.push_back(
        seconds([&] { compile_transition(from_, to, job_, cluster_, calibration_).value(); }));
    best_ = choice->best.latency.total;
  }
  Seconds best() const { return best_; }
  Json json() const {
    return {{"costing_s", quantile(costing_, 0.5)},
            {"search_s", quantile(search_, 0.5)},
            {"placement_s", quantile(placement_, 0.5)},
            {"compilation_s", quantile(compilation_, 0.5)}};
  }

 private:
  static double seconds(const std::function<void()>& work) { return cpu_time(work).count(); }

  const JobSpec& job_;
  const Calibration& calibration_;
  const Plan& from_;
  const Cluster& cluster_;
  const PlannerOptions& planner_;
  std::vector<double> costing_, search_, placement_, compilation_;
  Seconds best_;
};

}  // namespace

Seconds cpu_time(const std::function<void()>& work) {
  const auto now = [] {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
  };
  const double start = now();
  work();
  return Seconds(now() - start);
}

Json time_decision(const JobSpec& job, const Cluster& cluster, const PlannerOptions& planner,
                   int repeats) {
  const std::vector<DeviceId> devices = all_devices(cluster).devices();
  const Plan from = half_plan(devices);
  const StepReport report = report_of(from, job, cluster);
  const Controller before(job, cluster, from,
                          DevicePool({devices.begin(), devices.begin() + devices.size() / 2}),
                          measured_calibration(), {.planner = planner});
  Controller controller = before;
  Decision first;
  const Seconds first_time = cpu_time([&] { first = controller.observe(report); });
  if (!first.transition) throw Error(ErrorCode::kInternal, "did not move: " + first.reason);

  Parts parts(controller, from, cluster, planner);
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    Controller again = before;
    Decision decision;
    times.push_back(cpu_time([&] { decision = again.observe(report); }).count());
    if (decision.best != first.best || decision.transition != first.transition) {
      throw Error(ErrorCode::kInternal, "the same report led to another decision");
    }
    parts.run();
  }
  if (parts.best() != first.best_step) {
    throw Error(ErrorCode::kInternal, "decided for a plan of " + to_string(first.best_step) +
                                          " a step, the best takes " + to_string(parts.best()));
  }
  return {{"first_s", first_time},
          {"median_s", quantile(times, 0.5)},
          {"parts", parts.json()},
          {"reason", first.reason},
          {"primitives", first.transition->primitives.size()}};
}

}  // namespace nereus::bench
