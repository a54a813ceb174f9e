#include "nereus/core/controller/controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nereus/core/controller/fake_job.h"
#include "nereus/core/cost/test_job.h"

namespace nereus {
namespace {

using testing::HasSubstr;

const DevicePool kTwo({{0, 0}, {0, 1}});

// A controller and the machine it believes to steer: four devices that do not share cores.
class ControllerTest : public testing::Test {
 protected:
  explicit ControllerTest(int64_t mebibytes = 64)
      : cluster_(cpu_cluster(4, Bytes(mebibytes << 20), 4)), four_(all_devices(cluster_)) {}

  Controller start(const Plan& plan, const DevicePool& pool) const {
    return Controller(job_, cluster_, plan, pool, truth_, options_);
  }
  Controller start(const DevicePool& pool) const { return start(fastest(pool), pool); }
  Plan fastest(const DevicePool& pool) const {
    return choose_plan(job_, cluster_, pool, truth_, options_.planner)->best.plan;
  }
  // The step that ended, and what follows.
  Decision observe(Controller& controller, int step, const DevicePool& next_pool,
                   int64_t next_length = 32) const {
    JobSpec executed = job_;
    executed.workload = controller.job().workload;
    StepReport report = report_of(step, controller.plan(), executed, cluster_, next_pool, truth_);
    report.next_workload = stories_job(next_length).workload;
    return controller.observe(report);
  }
  // Carries an admitted transition out, as fast as predicted.
  static void apply(Controller& controller, const Decision& decision) {
    controller.applied(decision, {.measured = decision.transition_s});
  }

  JobSpec job_ = stories_job();
  Cluster cluster_;
  DevicePool four_;
  Calibration truth_ = machine(0.02);
  ControllerOptions options_;
};

TEST_F(ControllerTest, NothingHappensWithoutATrigger) {
  Controller controller = start(four_);
  for (int step = 0; step < 4; ++step) {
    const Decision decision = observe(controller, step, four_);
    EXPECT_EQ(decision.trigger, Trigger::kNone);
    EXPECT_EQ(decision.verdict, Verdict::kNone);
  }
}

TEST_F(ControllerTest, ForecastsTheNextStepUnderThePlanThatItWillRun) {
  Controller controller = start(four_);
  const Decision shrunk = observe(controller, 0, kTwo, 64);
  ASSERT_EQ(shrunk.verdict, Verdict::kAdmitted) << shrunk.reason;
  apply(controller, shrunk);
  const StepReport next = report_of(1, *shrunk.best, controller.job(), cluster_, kTwo, truth_);
  ASSERT_TRUE(shrunk.next);
  EXPECT_NEAR(shrunk.next->step.expected / next.step_s, 1, 1e-6);
  EXPECT_LE(shrunk.next->step.low, next.step_s);
  EXPECT_GE(shrunk.next->step.high, next.step_s);
  EXPECT_EQ(shrunk.next->peak, next.peak_bytes);
  const Json json = shrunk;
  EXPECT_EQ(json.at("next").at("peak_bytes").at("0:0"), next.peak_bytes.at({0, 0}).count());
  StepReport last = next;
  last.steps_left = 0;
  EXPECT_FALSE(controller.observe(last).next);
}

TEST_F(ControllerTest, AStepThatRanOutOfMemoryIsNoMeasureOfEfficiency) {
  const Plan smaller = uniform_plan(job_, {1, 1}, 4, 1);
  Controller controller = start(uniform_plan(job_, {1, 1}, 4, 4), four_);
  EXPECT_EQ(observe(controller, 0, four_).trigger, Trigger::kNone);
  StepReport report = report_of(1, smaller, job_, cluster_, four_, truth_);
  report.step_s = report.step_s * 3;  // with the passes that failed
  report.adjusted_plan = smaller;
  EXPECT_EQ(controller.observe(report).trigger, Trigger::kNone);
  EXPECT_EQ(controller.plan(), smaller);
  EXPECT_EQ(observe(controller, 2, four_).trigger, Trigger::kNone);
}

// Devices that come back, with room to move: the training state goes beside generation.
TEST_F(ControllerTest, MovesBesideGenerationWhereMemoryAdmitsIt) {
  options_.overlap = true;
  options_.gamma = 100;
  Controller controller = start(kTwo);
  EXPECT_EQ(observe(controller, 0, kTwo).trigger, Trigger::kNone);
  const Decision decision = observe(controller, 1, four_);
  ASSERT_EQ(decision.verdict, Verdict::kAdmitted) << decision.reason;
  ASSERT_TRUE(decision.overlapped);
  EXPECT_GT(decision.hidden_s, Seconds());
  EXPECT_EQ(at(decision.transition->to, kActorGeneration), at(controller.plan(), kActorGeneration));
  for (const StagePlan& stage : decision.best->stages) {
    if (stage.model_stage == kActorGeneration) continue;
    EXPECT_EQ(at(decision.transition->to, stage.model_stage), stage);
  }
  StepReport next = report_of(2, controller.plan(), job_, cluster_, four_, truth_);
  next.transition = TransitionReport{};
  controller.applied(decision, *next.transition);
  EXPECT_EQ(controller.plan(), *decision.best);
  const Calibration before = controller.calibration();
  controller.observe(next);
  EXPECT_EQ(controller.calibration(), before) << "a step with two plans measures neither";
}

// The job stopped before the step beside which its transition was to run.
TEST_F(ControllerTest, AnAdmittedTransitionThatWasNotMadeIsAskedForAgain) {
  options_.overlap = true;
  options_.gamma = 100;
  Controller controller = start(kTwo);
  observe(controller, 0, kTwo);
  const Decision lost = observe(controller, 1, four_);
  ASSERT_TRUE(lost.transition && lost.overlapped) << lost.reason;
  Controller restored = start(kTwo);
  restored.restore(parse_json(controller.save().dump(), "saved"));
  const Decision again = observe(restored, 2, four_);
  EXPECT_EQ(again.verdict, Verdict::kAdmitted) << again.reason;
  EXPECT_THAT(again.trigger_detail, HasSubstr("before the restart"));
  controller.applied(lost, TransitionReport{});
  restored.restore(parse_json(controller.save().dump(), "saved"));
  EXPECT_EQ(observe(restored, 2, four_).trigger, Trigger::kNone) << "it was made";
}

TEST_F(ControllerTest, WaitsForTheBoundaryIfDevicesOfThePlanGo) {
  options_.overlap = true;
  Controller controller = start(four_);
  const Decision decision = observe(controller, 0, kTwo);
  ASSERT_EQ(decision.verdict, Verdict::kAdmitted) << decision.reason;
  EXPECT_FALSE(decision.overlapped);
}

TEST_F(ControllerTest, AFailedTransitionGoesBackIfAllDevicesAreThere) {
  Controller controller = start(four_);
  const Decision decision = controller.recover(3, {.reason = "0:1 is out of memory"});
  EXPECT_EQ(decision.trigger, Trigger::kFault);
  EXPECT_EQ(decision.verdict, Verdict::kAdmitted);
  EXPECT_EQ(decision.best, fastest(four_));
}

TEST_F(ControllerTest, AFailedTransitionGoesOnWithTheDevicesThatAreLeft) {
  Controller controller = start(four_);
  const Decision decision = controller.recover(3, {.reason = "0:1 died", .lost = {{0, 1}}});
  ASSERT_TRUE(decision.best);
  EXPECT_FALSE(devices_of(*decision.best).contains({0, 1}));
  EXPECT_THAT(decision.reason, HasSubstr("lost 0:1"));
  controller.recovered(*decision.best);
  EXPECT_EQ(controller.plan(), *decision.best);
  const Decision hopeless = controller.recover(3, {"all died", {{0, 0}, {0, 2}, {0, 3}}});
  EXPECT_EQ(hopeless.verdict, Verdict::kStranded);
}

TEST_F(ControllerTest, LostDevicesAreUrgentAndProfitIsWaived) {
  options_.gamma = 0;
  options_.enabled = false;
  Controller controller = start(four_);
  observe(controller, 0, four_);
  const Decision decision = observe(controller, 1, kTwo);
  EXPECT_EQ(decision.trigger, Trigger::kPoolChange);
  EXPECT_THAT(decision.trigger_detail, HasSubstr("devices 4 → 2, gone: 0:2, 0:3"));
  EXPECT_TRUE(decision.urgent);
  ASSERT_EQ(decision.verdict, Verdict::kAdmitted) << decision.reason;
  EXPECT_LT(decision.gain_s, Seconds());
  EXPECT_THAT(decision.reason, HasSubstr("profit waived"));
  verify(decision.transition->to, kTwo, job_);
  apply(controller, decision);
  EXPECT_EQ(controller.plan(), decision.transition->to);
  EXPECT_EQ(observe(controller, 2, kTwo).verdict, Verdict::kNone);
}

// Grows from two devices to four at step 5 with the given γ.
class GrowthTest : public ControllerTest {
 protected:
  Decision grow(double gamma, bool enabled = true) {
    options_.gamma = gamma;
    options_.enabled = enabled;
    Controller controller = start(kTwo);
    for (int step = 0; step < 5; ++step) observe(controller, step, kTwo);
    return observe(controller, 5, four_);
  }
};

TEST_F(GrowthTest, TheInequalityDecidesAtItsBoundary) {
  const Decision decision = grow(0.5);
  EXPECT_EQ(decision.trigger, Trigger::kPoolChange);
  EXPECT_FALSE(decision.urgent);
  ASSERT_GT(decision.gain_s, Seconds());
  ASSERT_GT(decision.transition_s, Seconds());
  EXPECT_GT(decision.horizon, 1);

  const double gamma = decision.transition_s / decision.gain_s / decision.horizon;
  const Decision admitted = grow(gamma * 1.000001);
  EXPECT_EQ(admitted.verdict, Verdict::kAdmitted) << admitted.reason;
  EXPECT_THAT(admitted.reason, HasSubstr("≥ transition"));
  options_.planner.keep = 0;  // no cheaper alternatives
  const Decision rejected = grow(gamma * 0.999999);
  EXPECT_EQ(rejected.verdict, Verdict::kRejected) << rejected.reason;
  EXPECT_THAT(rejected.reason, HasSubstr("< transition"));
  EXPECT_FALSE(rejected.transition);
}

// What the pause took besides moving state counts as well, once it was seen.
TEST_F(GrowthTest, ATransitionCostsWhatTheLastOnesTookToSettle) {
  const Decision before = grow(0.5);
  truth_.observe_settling(Seconds(3));
  const Decision after = grow(0.5);
  EXPECT_NEAR((after.transition_s - before.transition_s).count(), 3, 1e-9);
  Calibration slower = truth_;
  slower.observe_settling(Seconds(5));
  EXPECT_NEAR(slower.settling().count(), 4, 1e-9);
  EXPECT_EQ(Json(slower).get<Calibration>(), slower);
}

TEST_F(GrowthTest, GainsEndWithTheJob) {
  Controller controller = start(kTwo);
  for (const int step : {0, 10, 20}) observe(controller, step, step == 10 ? four_ : kTwo);
  StepReport report = report_of(30, controller.plan(), job_, cluster_, four_, truth_);
  Controller near_the_end = controller;
  EXPECT_GT(controller.observe(report).horizon, 2);
  report.steps_left = 2;
  EXPECT_EQ(near_the_end.observe(report).horizon, 2);
}

TEST_F(GrowthTest, GammaZeroAdmitsUrgentTransitionsOnly) {
  EXPECT_EQ(grow(0).verdict, Verdict::kRejected);
}

TEST_F(GrowthTest, AdaptationOffKeepsThePlan) {
  const Decision decision = grow(100, false);
  EXPECT_EQ(decision.verdict, Verdict::kKept);
  EXPECT_THAT(decision.reason, HasSubstr("adaptation is off"));
}

TEST_F(GrowthTest, ASmallGainIsNoReasonToMove) {
  options_.min_gain = 0.99;
  const Decision decision = grow(100);
  EXPECT_EQ(decision.verdict, Verdict::kKept);
  EXPECT_THAT(decision.reason, HasSubstr("does not exceed 99 %"));
}

TEST_F(ControllerTest, ALastingDriftIsAnsweredOnceEvenIfRejected) {
  options_.gamma = 1e-12;
  options_.planner.keep = 0;
  Controller controller = start(uniform_plan(job_, {1, 1}, 1, 1), four_);
  observe(controller, 0, four_);
  const Decision drift = observe(controller, 1, four_, 64);
  EXPECT_EQ(drift.trigger, Trigger::kDrift);
  EXPECT_THAT(drift.trigger_detail, HasSubstr("response_length 32 → 64 (+100 %, threshold 30 %)"));
  EXPECT_EQ(drift.verdict, Verdict::kRejected) << drift.reason;
  EXPECT_EQ(observe(controller, 2, four_, 64).trigger, Trigger::kNone);
}

// Only the micro-batch changes: nothing moves, and still nothing is changed for profit.
TEST_F(ControllerTest, GammaZeroRefusesEvenFreeTransitions) {
  options_.gamma = 0;
  options_.planner.keep = 0;
  Plan plan = fastest(four_);
  for (StagePlan& stage : plan.stages) stage.micro_batch = 1;
  Controller controller = start(plan, four_);
  observe(controller, 0, four_);
  const Decision decision = observe(controller, 1, four_, 64);
  EXPECT_EQ(decision.transition_s, Seconds());
  EXPECT_EQ(decision.verdict, Verdict::kRejected) << decision.reason;
}

TEST_F(ControllerTest, AnotherEfficiencyOfANewPlanIsNoDrift) {
  truth_ = {};
  for (OpClass op_class : kAllOpClasses) {
    const double efficiency = op_class == OpClass::kTensorComm ? 1e-4 : 0.02;
    truth_.observe(op_class, Seconds(efficiency), Seconds(1));
  }
  options_.gamma = 100;
  Controller controller = start(uniform_plan(job_, {4, 1}, 1, 8), four_);
  observe(controller, 0, four_);
  const Decision decision = observe(controller, 1, four_, 64);
  ASSERT_EQ(decision.verdict, Verdict::kAdmitted) << decision.reason;
  apply(controller, decision);
  const Decision next = observe(controller, 2, four_, 64);
  EXPECT_GT(next.signals.at("efficiency"), 1.3 * decision.signals.at("efficiency"));
  EXPECT_EQ(next.trigger, Trigger::kNone) << next.trigger_detail;
}

TEST_F(ControllerTest, DriftLeadsToAFasterPlan) {
  options_.gamma = 100;
  Controller controller = start(uniform_plan(job_, {1, 1}, 1, 1), four_);
  observe(controller, 0, four_);
  const Decision decision = observe(controller, 1, four_, 64);
  ASSERT_EQ(decision.verdict, Verdict::kAdmitted) << decision.reason;
  EXPECT_EQ(decision.trigger, Trigger::kDrift);
  EXPECT_LT(decision.best_step, decision.current_step);
  apply(controller, decision);
  EXPECT_EQ(observe(controller, 2, four_, 64).verdict, Verdict::kNone);
}

class TightMemoryTest : public ControllerTest {
 protected:
  TightMemoryTest() : ControllerTest(24) {
    options_.gamma = 0;
    options_.monitor.length_threshold = 100;
  }
};

TEST_F(TightMemoryTest, APredictedViolationIsAnsweredBeforeItHappens) {
  const Plan plan = fastest(four_);
  Controller controller = start(plan, four_);
  EXPECT_EQ(observe(controller, 0, four_).verdict, Verdict::kNone);
  const Decision decision = observe(controller, 1, four_, 256);
  EXPECT_EQ(decision.trigger, Trigger::kMemory);
  EXPECT_TRUE(decision.urgent);
  EXPECT_THAT(decision.trigger_detail, HasSubstr("device 0:0 needs"));
  ASSERT_EQ(decision.verdict, Verdict::kAdmitted) << decision.reason;
  const MemoryPrediction memory =
      predict_memory(decision.transition->to, controller.job(), controller.calibration());
  EXPECT_TRUE(memory_violations(memory, cluster_, 0.1).empty());
}

// Peaks between the headroom that the planner leaves and the capacity: the plan stays, and drift
// is still measured from where it began.
TEST_F(TightMemoryTest, ALastingViolationIsAnsweredOnceUntilItGrows) {
  options_.monitor.length_threshold = 0.3;
  Plan plan = uniform_plan(job_, {1, 1}, 1, 1, /*recompute=*/true);
  plan.stages.front().waves = static_cast<int>(job_.workload.samples);  // no plan needs less
  const DevicePool one({{0, 0}});
  const Bytes peak = predict_memory(plan, job_, truth_).peak.at({0, 0});
  cluster_.device.memory = peak * 1.02;
  Controller controller = start(plan, one);
  const Decision first = observe(controller, 0, one);
  EXPECT_EQ(first.trigger, Trigger::kMemory);
  EXPECT_EQ(first.verdict, Verdict::kRejected) << first.reason;
  for (int step = 1; step < 4; ++step) {
    EXPECT_EQ(observe(controller, step, one).trigger, Trigger::kNone) << "step " << step;
  }
  EXPECT_EQ(observe(controller, 4, one, 96).trigger, Trigger::kMemory) << "it has grown";
}

TEST_F(TightMemoryTest, StrandedIfNothingFits) {
  Controller controller = start(four_);
  const Decision decision = observe(controller, 0, four_, 100000);
  EXPECT_EQ(decision.verdict, Verdict::kStranded);
  EXPECT_THAT(decision.reason, HasSubstr("no plan fits 4 devices"));
  EXPECT_THAT(decision.reason, HasSubstr("resume"));
  EXPECT_FALSE(decision.transition);
}

TEST_F(ControllerTest, StrandedWithoutDevices) {
  Controller controller = start(four_);
  const Decision decision = observe(controller, 0, DevicePool());
  EXPECT_EQ(decision.verdict, Verdict::kStranded);
  EXPECT_THAT(decision.reason, HasSubstr("no device is available"));
}

TEST_F(ControllerTest, TheLastStepNeedsNoDecision) {
  Controller controller = start(four_);
  StepReport report = report_of(0, controller.plan(), job_, cluster_, DevicePool(), truth_);
  report.steps_left = 0;
  EXPECT_EQ(controller.observe(report).verdict, Verdict::kNone);
}

TEST_F(ControllerTest, GoesOnAfterARestartAsIfNothingHadHappened) {
  Controller controller = start(four_);
  observe(controller, 0, four_);
  const Decision shrink = observe(controller, 3, kTwo, 48);
  ASSERT_EQ(shrink.verdict, Verdict::kAdmitted) << shrink.reason;
  apply(controller, shrink);

  Controller restored(job_, cluster_, fastest(four_), four_, {}, options_);
  restored.restore(parse_json(controller.save().dump(), "saved"));
  EXPECT_EQ(restored.plan(), controller.plan());
  for (int step = 4; step < 12; ++step) {
    const DevicePool& pool = step < 8 ? kTwo : four_;
    const Json expected = observe(controller, step, pool, 16 * step);
    EXPECT_EQ(Json(observe(restored, step, pool, 16 * step)), expected);
  }
  EXPECT_EQ(restored.save(), controller.save());
}

TEST_F(GrowthTest, DecisionsPrintTheDocumentedKeys) {
  const Json j = grow(0.5);
  for (const char* key : {"type", "step", "trigger", "signals", "current_step_s", "best",
                          "transition_s", "gain_s", "horizon", "gamma", "verdict", "reason"}) {
    EXPECT_TRUE(j.contains(key)) << key;
  }
  EXPECT_EQ(j["type"], "decision");
  EXPECT_EQ(j["trigger"], "pool_change");
}

}  // namespace
}  // namespace nereus
