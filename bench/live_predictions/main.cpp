// Predictions beside live steps on virtual CPU devices, for one setting: a job runs some steps
// under a starting plan, from which the cost model learns; then the step time and the peak memory
// of other plans are predicted, and those plans run, in turns so that a busy moment of the machine
// hits all alike. The job moves from plan to plan by live transitions. run.py calls it for many
// settings.
#include <CLI/CLI.hpp>
#include <iostream>
#include <random>

#include "common/record.h"
#include "nereus/app/assemble/job.h"
#include "nereus/app/driver/live_options.h"
#include "nereus/core/controller/learning.h"
#include "nereus/core/transition/compile.h"
#include "nereus/runtime/live/live_job.h"

namespace nereus::bench {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  bool random_start = false;
  int calibrate = 5;
  int best = 0;
  int random = 0;
  int rounds = 1;
  int measure = 5;
  uint64_t seed = 1;
};

// What is asked of the planner, and of the live job.
struct Setting {
  explicit Setting(const Config& config)
      : live(to_live_options(config)),
        job(job_spec(live, 0)),
        pool(live.supply.at(0)),
        planner(to_controller_options(config).planner) {}
  LiveOptions live;
  JobSpec job;
  DevicePool pool;
  PlannerOptions planner;
};

class RandomPlans {
 public:
  RandomPlans(const Setting& setting, uint64_t seed) : setting_(setting), generator_(seed) {}

  // Each model-stage under a layout of its own, on the devices from the first on; one that fits.
  Plan next() {
    while (true) {
      Plan plan;
      for (ModelStage model_stage : model_stages(setting_.job.workflow)) {
        plan.stages.push_back(stage(model_stage));
      }
      if (runs(plan)) return plan;
    }
  }

 private:
  int below(int limit) { return static_cast<int>(generator_() % static_cast<uint64_t>(limit)); }

  StagePlan stage(ModelStage model_stage) {
    const int devices = setting_.pool.size();
    Layout layout;
    do {
      layout = {1 << below(3), 1 << below(3)};
    } while (layout.devices() > devices);
    const int dp = 1 + below(devices / layout.devices());
    const bool recompute = model_stage.stage == Stage::kTraining && below(3) == 0;
    return place(model_stage, layout, dp, 2 << below(5), recompute, setting_.pool);
  }

  bool runs(const Plan& plan) const {
    try {
      verify(plan, setting_.pool, setting_.job);
    } catch (const Error&) {
      return false;
    }
    const MemoryPrediction memory = predict_memory(plan, setting_.job, {});
    return memory_violations(memory, setting_.live.cluster, setting_.planner.headroom).empty();
  }

  const Setting& setting_;
  std::mt19937_64 generator_;
};

Json by_device(const std::map<DeviceId, Bytes>& bytes) {
  Json json = Json::object();
  for (const auto& [device, count] : bytes) json[to_string(device)] = count;
  return json;
}

// A plan with what was predicted of it, and what was measured so far.
class Trial {
 public:
  Trial(Plan plan, const std::string& why, const JobSpec& job, const Cluster& cluster,
        const Calibration& calibration)
      : plan_(std::move(plan)) {
    const StepLatency latency = predict_step(plan_, job, cluster, calibration);
    const TimeEstimate& step = latency.estimate;
    record_ = {{"plan", to_string(plan_)},
               {"why", why},
               {"predicted_s", step.expected},
               {"low_s", step.low},
               {"high_s", step.high},
               {"predicted_peak", by_device(predict_memory(plan_, job, calibration).peak)},
               {"uncalibrated_peak", by_device(predict_memory(plan_, job, {}).peak)},
               {"measured_s", Json::array()}};
    for (const NodeLatency& node : latency.nodes) {
      record_["nodes"][node.name] = {{"predicted_s", node.predicted},
                                     {"measured_s", Json::array()}};
    }
  }

  const Plan& plan() const { return plan_; }

  void add(const StepReport& report) {
    record_["measured_s"].push_back(report.step_s);
    for (const Span& node : report.spans) {
      record_["nodes"][node.name]["measured_s"].push_back(node.took());
    }
    for (const auto& [device, bytes] : report.peak_bytes) {
      if (!is_host_memory(device)) peak_[device] = std::max(peak_[device], bytes);
    }
  }

  Json json() const {
    Json record = record_;
    record["measured_peak"] = by_device(peak_);
    return record;
  }

 private:
  Plan plan_;
  Json record_;
  std::map<DeviceId, Bytes> peak_;
};

// The planner's choice and its runners-up, and random plans.
std::vector<Trial> trials(const Arguments& arguments, Setting& setting, RandomPlans& random,
                          const Plan& start, const Calibration& calibration) {
  std::vector<Trial> trials;
  const auto add = [&](const Plan& plan, const std::string& why) {
    trials.emplace_back(plan, why, setting.job, setting.live.cluster, calibration);
  };
  if (arguments.best == 0) add(start, "start");
  if (arguments.best > 0) {
    setting.planner.keep = arguments.best;
    setting.planner.tolerance = 10;
    const PlanChoice choice = choose_plan(setting.job, setting.live.cluster, setting.pool,
                                          calibration, setting.planner, &start)
                                  .value();
    add(choice.best.plan, "chosen");
    for (const Candidate& other : choice.alternatives) add(other.plan, "runner-up");
  }
  for (int i = 0; i < arguments.random; ++i) add(random.next(), "random");
  return trials;
}

void move(LiveJob& live, const Plan& to, const Setting& setting, const Calibration& calibration) {
  if (live.plan() == to) return;
  live.apply(
      compile_transition(live.plan(), to, setting.job, setting.live.cluster, calibration).value());
}

Json run(const Arguments& arguments) {
  Setting setting(load_config(arguments.config, arguments.overrides));
  const Cluster& cluster = setting.live.cluster;
  RandomPlans random(setting, arguments.seed);
  const Plan start =
      arguments.random_start
          ? random.next()
          : choose_plan(setting.job, cluster, setting.pool, {}, setting.planner).value().best.plan;
  LiveJob live(setting.live, start);

  Calibration calibration;
  for (int step = 0; step < arguments.calibrate; ++step) {
    const StepReport report = live.run_step();
    calibration = learned(calibration, report, start, setting.job, cluster);
    setting.job.workload = report.next_workload;
  }

  std::vector<Trial> all = trials(arguments, setting, random, start, calibration);
  std::mt19937_64 generator(arguments.seed);
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  for (int round = 0; round < arguments.rounds; ++round) {
    std::ranges::shuffle(order, generator);
    for (size_t index : order) {
      Trial& trial = all[index];
      const bool moved = live.plan() != trial.plan();
      move(live, trial.plan(), setting, calibration);
      if (moved) live.run_step();  // the first step after a transition warms caches
      for (int step = 0; step < arguments.measure; ++step) trial.add(live.run_step());
    }
  }

  Json record{{"devices", setting.pool.size()},
              {"cores", cluster.hosts.front().full_speed_devices},
              {"workload", setting.job.workload},
              {"memory_per_device", cluster.device.memory},
              {"headroom", setting.planner.headroom},
              {"start", to_string(start)},
              {"calibration", calibration}};
  for (const Trial& trial : all) record["plans"].push_back(trial.json());
  return record;
}

}  // namespace
}  // namespace nereus::bench

int main(int argc, char** argv) {
  nereus::bench::Arguments arguments;
  CLI::App app{"Predicted and measured steps under several plans, JSON"};
  app.add_option("config", arguments.config, "The job")->required();
  app.add_option("overrides", arguments.overrides, "key=value");
  app.add_flag("--random-start", arguments.random_start,
               "Learn under a random plan, not the planner's");
  app.add_option("--calibrate", arguments.calibrate, "Steps to learn from");
  app.add_option("--best", arguments.best, "Runners-up to run beside the planner's choice");
  app.add_option("--random", arguments.random, "Random plans to run");
  app.add_option("--rounds", arguments.rounds, "Times that each plan has its turn");
  app.add_option("--measure", arguments.measure, "Steps a turn");
  app.add_option("--seed", arguments.seed, "Of random plans and the order of turns");
  CLI11_PARSE(app, argc, argv);
  try {
    std::cout << nereus::bench::run(arguments).dump(1) << "\n";
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
