#include "nereus/app/driver/loop.h"

#include <gtest/gtest.h>

#include <vector>

namespace nereus {
namespace {

// A job of `steps` steps that loses its devices after step `lost_after` (-1: never).
class FakeJob final : public Job {
 public:
  FakeJob(JobSpec job, Cluster cluster, Plan plan, int steps, int lost_after)
      : job_(std::move(job)),
        cluster_(std::move(cluster)),
        plan_(std::move(plan)),
        steps_(steps),
        lost_after_(lost_after) {
    pool_after_first = all_devices(cluster_);
  }

  const Plan& plan() const override { return plan_; }
  bool done() const override { return step_ == steps_; }
  StepReport run_step() override {
    StepReport report;
    if (overlapped_) {
      report.transition = TransitionReport{};
      if (dies_in_transition) {
        report.transition->failure = TransitionFailure{"device 0:0 died", {{0, 0}}};
        report.step = step_;
        pool_after_first = DevicePool({{0, 1}});
        overlapped_.reset();
        return report;
      }
      plan_ = *std::exchange(overlapped_, std::nullopt);
    }
    if (told_to_stop) {
      report.step = step_;
      report.abandoned = true;
      return report;
    }
    report.step = step_++;
    for (const NodeId node : node_ids(job_.workflow)) {
      const Seconds start = report.step_s;
      report.step_s += Seconds(0.1);
      report.spans.push_back({.step = report.step,
                              .node = node,
                              .name = job_.workflow.at(node).name,
                              .start = start,
                              .end = report.step_s});
    }
    report.workload = report.next_workload = job_.workload;
    if (report.step != lost_after_) report.next_pool = pool_after_first;
    report.steps_left = steps_ - step_;
    return report;
  }
  TransitionReport apply(const TransitionDag& dag) override {
    TransitionReport report;
    if (dies_in_transition) {
      report.failure = TransitionFailure{"device 0:0 died", {{0, 0}}};
    } else {
      plan_ = dag.to;
    }
    return report;
  }
  void overlap(TransitionDag, Plan to) override { overlapped_ = std::move(to); }
  int step() const override { return step_; }
  bool intact() const override { return true; }
  int64_t dropped_prompts() const override { return 0; }
  std::map<std::string, double> validate_at_start() override { return {}; }
  void save(const std::filesystem::path&, const Json&, int) const override {}
  void export_model(const std::filesystem::path&) const override {}
  TransitionReport recover(const Plan& plan) override {
    TransitionReport report;
    if (cannot_recover) {
      report.failure = TransitionFailure{"no memory", {}};
    } else {
      plan_ = plan;
    }
    return report;
  }

  bool told_to_stop = false;
  bool dies_in_transition = false;
  bool cannot_recover = false;
  DevicePool pool_after_first;

 private:
  std::optional<Plan> overlapped_;
  JobSpec job_;
  Cluster cluster_;
  Plan plan_;
  int steps_;
  int lost_after_;
  int step_ = 0;
};

class Counter final : public Recorder {
 public:
  explicit Counter(std::atomic<bool>* stop_after_first = nullptr) : stop_(stop_after_first) {}
  void write(const StepReport&, const Decision&) override { ++steps; }
  void write(int, const Decision&, const TransitionReport&) override { ++transitions; }
  void write(int, const Decision&) override { ++recoveries; }
  void at_boundary() override {
    ++boundaries;
    if (stop_ != nullptr) *stop_ = true;
  }
  int steps = 0;
  int transitions = 0;
  int boundaries = 0;
  int recoveries = 0;

 private:
  std::atomic<bool>* stop_;
};

class LoopTest : public testing::Test {
 protected:
  LoopTest() {
    ModelSpec spec;
    spec.vocab_size = 64;
    spec.hidden_size = 16;
    spec.intermediate_size = 32;
    spec.num_layers = 2;
    spec.num_heads = spec.num_kv_heads = 4;
    spec.head_dim = 4;
    job_.workflow = ppo_workflow(false);
    job_.models = {{Role::kActor, {spec, DType::kFloat32}},
                   {Role::kCritic, {as_critic(spec), DType::kFloat32}}};
    job_.workload = {
        .samples = 8, .prompt_tokens = 4, .response_mean = 8, .response_limit = 8, .mini_batch = 8};
    plan_ = choose_plan(job_, cluster_, all_devices(cluster_), Calibration(), {})->best.plan;
  }

  LoopEnd run(int steps, int lost_after, Counter& counter) {
    FakeJob job(job_, cluster_, plan_, steps, lost_after);
    Controller controller(job_, cluster_, plan_, all_devices(cluster_), Calibration(),
                          {.enabled = false});
    return run_loop(job, controller, counter, stop_);
  }

  JobSpec job_;
  Cluster cluster_ = cpu_cluster(2, Bytes(64 << 20), 2);
  Plan plan_;
  std::atomic<bool> stop_ = false;
};

TEST_F(LoopTest, RunsToTheEnd) {
  Counter counter;
  EXPECT_EQ(run(5, -1, counter), LoopEnd::kFinished);
  EXPECT_EQ(counter.steps, 5);
  EXPECT_EQ(counter.boundaries, 5);
  EXPECT_EQ(counter.transitions, 0);
}

TEST_F(LoopTest, AStepThatIsGivenUpIsTheEndAndNotRecorded) {
  FakeJob job(job_, cluster_, plan_, 4, -1);
  job.told_to_stop = true;
  Controller controller(job_, cluster_, plan_, all_devices(cluster_), Calibration(),
                        {.enabled = false});
  Counter counter;
  EXPECT_EQ(run_loop(job, controller, counter, stop_), LoopEnd::kStopped);
  EXPECT_EQ(counter.steps, 0);
  EXPECT_EQ(counter.boundaries, 0);
}

TEST_F(LoopTest, GoesOnWithWhatIsIntactAfterAFailedTransition) {
  // Without 0:2 from the second step on the plan must change, and 0:0 dies while it does.
  cluster_ = cpu_cluster(3, Bytes(64 << 20), 3);
  for (StagePlan& stage : plan_.stages) stage.units = {{{0, 2}}, {{0, 0}}};
  for (StagePlan& stage : plan_.stages) stage.layout = {1, 1};
  FakeJob job(job_, cluster_, plan_, 4, -1);
  job.dies_in_transition = true;
  job.pool_after_first = DevicePool({{0, 0}, {0, 1}});
  Controller controller(job_, cluster_, plan_, all_devices(cluster_), Calibration(),
                        {.enabled = false});
  Counter counter;
  EXPECT_EQ(run_loop(job, controller, counter, stop_), LoopEnd::kFinished);
  EXPECT_EQ(counter.transitions, 1);
  EXPECT_EQ(counter.recoveries, 1);
  EXPECT_EQ(devices_of(job.plan()), DevicePool({{0, 1}}));
  EXPECT_EQ(controller.plan(), job.plan());
}

TEST_F(LoopTest, GivesUpWhatFailsAgainAndAgain) {
  cluster_ = cpu_cluster(3, Bytes(64 << 20), 3);
  for (StagePlan& stage : plan_.stages) stage.units = {{{0, 2}}, {{0, 0}}};
  for (StagePlan& stage : plan_.stages) stage.layout = {1, 1};
  FakeJob job(job_, cluster_, plan_, 4, -1);
  job.dies_in_transition = job.cannot_recover = true;
  job.pool_after_first = DevicePool({{0, 0}, {0, 1}});
  Controller controller(job_, cluster_, plan_, all_devices(cluster_), Calibration(),
                        {.enabled = false});
  Counter counter;
  try {
    run_loop(job, controller, counter, stop_);
    FAIL() << "recovered by itself";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kAborted);
    EXPECT_NE(std::string(error.what()).find("no memory"), std::string::npos) << error.what();
  }
  EXPECT_EQ(counter.recoveries, 3);
}

// A device joins after the first step.
class OverlapTest : public LoopTest {
 protected:
  LoopEnd run_with_a_new_device(bool dies) {
    job_.workload.response_limit = 64;
    cluster_ = cpu_cluster(2, Bytes(64 << 20), 2);
    plan_ = choose_plan(job_, cluster_, DevicePool({{0, 0}}), Calibration(), {})->best.plan;
    FakeJob job(job_, cluster_, plan_, 4, -1);
    job.dies_in_transition = dies;
    Controller controller(job_, cluster_, plan_, all_devices(cluster_), Calibration(),
                          {.gamma = 1e6, .min_gain = -1e6, .overlap = true});
    // The controller believes that the device was not there before.
    Json state = controller.save();
    state["pool"] = DevicePool({{0, 0}});
    controller.restore(state);
    const LoopEnd end = run_loop(job, controller, counter_, stop_);
    EXPECT_EQ(controller.plan(), job.plan());
    return end;
  }
  Counter counter_;
};

TEST_F(OverlapTest, SettlesATransitionAfterTheStepBesideWhichItRan) {
  EXPECT_EQ(run_with_a_new_device(false), LoopEnd::kFinished);
  EXPECT_EQ(counter_.steps, 4);
  EXPECT_EQ(counter_.transitions, 1);
  EXPECT_EQ(counter_.recoveries, 0);
}

TEST_F(OverlapTest, RepeatsTheStepInWhichItFailed) {
  EXPECT_EQ(run_with_a_new_device(true), LoopEnd::kFinished);
  EXPECT_EQ(counter_.steps, 4);
  EXPECT_EQ(counter_.recoveries, 1);
}

TEST_F(LoopTest, StopsAtTheNextBoundary) {
  Counter counter(&stop_);
  EXPECT_EQ(run(5, -1, counter), LoopEnd::kStopped);
  EXPECT_EQ(counter.steps, 1);
}

TEST_F(LoopTest, EndsWhenNoDeviceIsLeft) {
  Counter counter;
  EXPECT_EQ(run(5, 2, counter), LoopEnd::kStranded);
  EXPECT_EQ(counter.steps, 3);
}

}  // namespace
}  // namespace nereus
