#include "nereus/core/transition/compile.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "nereus/core/base/error.h"
#include "nereus/core/cost/memory.h"
#include "nereus/core/transition/draft.h"

namespace nereus {

namespace {

using Passages = std::map<ModelStage, Passage>;

void require_same_stages(const Plan& from, const Plan& to) {
  for (const auto& [here, there] : {std::pair(&from, &to), std::pair(&to, &from)}) {
    for (const StagePlan& stage : here->stages) {
      if (find(*there, stage.model_stage) == nullptr) {
        throw Error(ErrorCode::kInvalidInput,
                    "only one of the two plans has " + to_string(stage.model_stage) +
                        ": a transition needs the same model-stages on both sides");
      }
    }
  }
}

bool keeps_a_unit(const StagePlan& from, const StagePlan& to) {
  return from.layout == to.layout && std::ranges::any_of(from.units, [&](const auto& unit) {
           return std::ranges::find(to.units, unit) != to.units.end();
         });
}

TransitionDag finished(Draft draft, const Schedule& schedule, const DeviceNumbers& numbers,
                       Seconds connecting) {
  TransitionDag dag;
  dag.units = std::move(draft.units);
  const bool crosses_hosts =
      std::ranges::any_of(draft.problem.tasks, [](const Task& task) { return !task.nics.empty(); });
  if (crosses_hosts) dag.connecting = connecting;
  dag.makespan = dag.connecting + schedule.makespan;
  std::vector<int> place(schedule.order.size());
  dag.primitives.reserve(schedule.order.size());
  for (const int task : schedule.order) {
    place[task] = static_cast<int>(dag.primitives.size());
    Primitive& p = dag.primitives.emplace_back(std::move(draft.primitives[task]));
    p.id = place[task];
    p.chunked = schedule.chunked[task];
    p.start = dag.connecting + schedule.start[task];
    p.predicted = draft.problem.tasks[task].duration;
    for (const int need : draft.problem.tasks[task].needs) {
      dag.edges.push_back({place[need], p.id, EdgeKind::kState});
    }
  }
  for (const auto& [release, acquisition] : schedule.waits) {
    dag.edges.push_back({place[release], place[acquisition], EdgeKind::kResource});
  }
  std::ranges::sort(dag.edges, {}, [](const Edge& e) { return std::pair(e.to, e.from); });
  for (int number = 0; number < numbers.count(); ++number) {
    if (schedule.peak[number] > Bytes()) {
      dag.peak_bytes[numbers.device(number)] = schedule.peak[number];
    }
  }
  return dag;
}

// Ties in stage order, or what others wait for first: the shorter of the two, stage order if equal.
std::variant<Schedule, Stuck> best_schedule(const ScheduleProblem& problem) {
  std::variant<Schedule, Stuck> result = schedule(problem);
  const bool chains =
      std::ranges::any_of(problem.tasks, [](const Task& task) { return !task.needs.empty(); });
  if (!chains) return result;
  std::variant<Schedule, Stuck> other = schedule(longest_tail_first(problem));
  const auto* one = std::get_if<Schedule>(&result);
  const auto* two = std::get_if<Schedule>(&other);
  const bool better = two != nullptr && (one == nullptr || two->makespan < one->makespan);
  return better ? other : result;
}

}  // namespace

class TransitionCompiler::Impl {
 public:
  Impl(const JobSpec& job, const Cluster& cluster) : drafter_(job, cluster) {}

  Expected<TransitionDag> compile(const Plan& from, const Plan& to, const Calibration& calibration,
                                  const TransitionOptions& options) {
    const Bytes all = drafter_.cluster().device.memory;
    Expected<TransitionDag> dag = compile(from, to, calibration, options, what_fits());
    // Better a transition that may run out of memory than none. Beside running passes it would
    // endanger those, and the boundary of the step is near.
    const bool dares = options.reserved.empty() && what_fits() < all;
    if (dag || !dares) return dag;
    return compile(from, to, calibration, options, all);
  }

  ScheduleProblem formulate(const Plan& from, const Plan& to, const Calibration& calibration,
                            const TransitionOptions& options) {
    const Passages passages = first_passages(from, to, options);
    return drafter_.draft(from, to, passages, calibration, what_fits(), options.reserved).problem;
  }

 private:
  // Of a device, so that what its runtime takes and what fragments has room too.
  Bytes what_fits() const { return usable_memory(drafter_.cluster().device, 0); }

  // If devices have room for `capacity`.
  Expected<TransitionDag> compile(const Plan& from, const Plan& to, const Calibration& calibration,
                                  const TransitionOptions& options, Bytes capacity) {
    Passages passages = first_passages(from, to, options);
    while (true) {
      Draft draft = drafter_.draft(from, to, passages, calibration, capacity, options.reserved);
      const std::variant<Schedule, Stuck> result = best_schedule(draft.problem);
      if (const auto* schedule = std::get_if<Schedule>(&result)) {
        TransitionDag dag = finished(std::move(draft), *schedule, drafter_.numbers(),
                                     drafter_.cluster().connecting);
        dag.from = from;
        dag.to = to;
        verify(dag);
        return dag;
      }
      const Stuck& stuck = std::get<Stuck>(result);
      if (!escalate(passages, stages_of(draft, stuck), from, to, options)) {
        return tl::unexpected(why(draft, stuck, capacity));
      }
    }
  }

  // Of the model-stages that change.
  Passages first_passages(const Plan& from, const Plan& to, const TransitionOptions& options) {
    require_same_stages(from, to);
    Passages passages;
    for (const StagePlan& before : from.stages) {
      const StagePlan& after = at(to, before.model_stage);
      if (before.layout == after.layout && before.units == after.units) continue;
      const bool fused = options.fuse && drafter_.worth_fusing(before, after);
      passages[before.model_stage] = fused ? Passage::kRoute : Passage::kPrimitives;
    }
    return passages;
  }

  static std::vector<ModelStage> stages_of(const Draft& draft, const Stuck& stuck) {
    std::vector<ModelStage> stages;
    for (const int task : stuck.tasks) {
      const ModelStage stage = draft.primitives[task].model_stage;
      if (std::ranges::find(stages, stage) == stages.end()) stages.push_back(stage);
    }
    return stages;
  }

  // Lets one of the model-stages that are stuck go another way. Primitives release early what a
  // route releases late; parking the smallest state in host memory breaks a swap of devices.
  bool escalate(Passages& passages, std::vector<ModelStage> stuck, const Plan& from, const Plan& to,
                const TransitionOptions& options) {
    for (const ModelStage stage : stuck) {
      if (passages.at(stage) != Passage::kRoute) continue;
      passages.at(stage) = Passage::kPrimitives;
      return true;
    }
    if (!options.host_staging) return false;
    std::erase_if(stuck, [&](ModelStage stage) {
      return passages.at(stage) == Passage::kHostStaging ||
             keeps_a_unit(at(from, stage), at(to, stage)) ||
             !drafter_.staging_host(at(from, stage));
    });
    if (stuck.empty()) return false;
    const auto bytes = [&](ModelStage stage) { return drafter_.state_bytes(stage); };
    passages.at(*std::ranges::min_element(stuck, {}, bytes)) = Passage::kHostStaging;
    return true;
  }

  std::string why(const Draft& draft, const Stuck& stuck, Bytes capacity) const {
    const Primitive& blocked = draft.primitives[stuck.tasks.front()];
    const DeviceId device = drafter_.numbers().device(stuck.device);
    const Cluster& cluster = drafter_.cluster();
    const Bytes memory = is_host_memory(device) ? cluster.hosts[device.host].memory : capacity;
    return "the transition does not fit: " + to_string(blocked, draft.units) + " needs " +
           to_string(stuck.needed) + " on device " + to_string(device) + ", where " +
           to_string(std::max(stuck.free, Bytes())) + " of " + to_string(memory) +
           " are free and nothing more can be released before it";
  }

  Drafter drafter_;
};

TransitionCompiler::TransitionCompiler(const JobSpec& job, const Cluster& cluster)
    : impl_(std::make_unique<Impl>(job, cluster)) {}
TransitionCompiler::~TransitionCompiler() = default;

Expected<TransitionDag> TransitionCompiler::compile(const Plan& from, const Plan& to,
                                                    const Calibration& calibration,
                                                    const TransitionOptions& options) {
  return impl_->compile(from, to, calibration, options);
}

ScheduleProblem TransitionCompiler::formulate(const Plan& from, const Plan& to,
                                              const Calibration& calibration,
                                              const TransitionOptions& options) {
  return impl_->formulate(from, to, calibration, options);
}

Expected<TransitionDag> compile_transition(const Plan& from, const Plan& to, const JobSpec& job,
                                           const Cluster& cluster, const Calibration& calibration,
                                           const TransitionOptions& options) {
  return TransitionCompiler(job, cluster).compile(from, to, calibration, options);
}

}  // namespace nereus
