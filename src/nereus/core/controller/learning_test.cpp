#include "nereus/core/controller/learning.h"

#include <gtest/gtest.h>

#include "nereus/core/controller/fake_job.h"
#include "nereus/core/cost/test_job.h"

namespace nereus {
namespace {

const Cluster kCluster = cpu_cluster(4, Bytes(1 << 30), 4);

TEST(Learning, OneStepTeachesTheMachine) {
  const JobSpec job = stories_job();
  const Plan plan = uniform_plan(job, {2, 1}, 2, 8);
  const StepReport report =
      report_of(0, plan, job, kCluster, all_devices(kCluster), machine(0.01, 1.5));
  const Calibration calibration = learned({}, report, plan, job, kCluster);
  EXPECT_NEAR(predict_step(plan, job, kCluster, calibration).total / report.step_s, 1, 1e-9);
  EXPECT_NEAR(calibration.memory_factor(), 1.5, 1e-3);
  EXPECT_FALSE(calibration.seen(OpClass::kPipelineComm));
  // What was learned under one plan serves another.
  const Plan other = uniform_plan(job, {1, 1}, 4, 4);
  EXPECT_NEAR(predict_step(other, job, kCluster, calibration).total /
                  predict_step(other, job, kCluster, machine(0.01)).total,
              1, 1e-9);
}

TEST(Learning, TheExecutedWorkloadCountsNotTheNextOne) {
  const JobSpec job = stories_job(64);
  const Plan plan = uniform_plan(job, {1, 1}, 4, 8);
  const StepReport report = report_of(0, plan, job, kCluster, all_devices(kCluster), machine(0.01));
  const Calibration calibration = learned({}, report, plan, stories_job(32), kCluster);
  EXPECT_NEAR(calibration.efficiency(OpClass::kDecode), 0.01, 1e-9);
}

TEST(Learning, WaitingInAPipelineIsNotCommunication) {
  const JobSpec job = stories_job();
  const Plan plan = uniform_plan(job, {1, 4}, 1, 8);
  StepReport report = report_of(0, plan, job, kCluster, all_devices(kCluster), machine(0.01));
  // Half of the local time was spent waiting, which workers count as communication.
  for (Span& node : report.spans) {
    for (OpClass local : {OpClass::kCompute, OpClass::kDecode}) {
      const auto time = node.by_class.find(local);
      if (time == node.by_class.end() || !node.by_class.contains(OpClass::kPipelineComm)) continue;
      node.by_class[OpClass::kPipelineComm] += time->second * 0.5;
      time->second = time->second * 0.5;
    }
  }
  const Calibration calibration = learned({}, report, plan, job, kCluster);
  EXPECT_NEAR(predict_step(plan, job, kCluster, calibration).total / report.step_s, 1, 0.02);
  EXPECT_NEAR(calibration.efficiency(OpClass::kCompute), 0.01, 1e-3);
}

TEST(Learning, TheSlowestWorkerCountsNotTheMean) {
  const JobSpec job = stories_job();
  const Plan plan = uniform_plan(job, {1, 1}, 4, 8);
  StepReport report = report_of(0, plan, job, kCluster, all_devices(kCluster), machine(0.01));
  // Half of the workers had nothing to do.
  for (Span& node : report.spans) {
    for (auto& [op_class, time] : node.by_class) time = time * 0.5;
  }
  const Calibration calibration = learned({}, report, plan, job, kCluster);
  EXPECT_NEAR(predict_step(plan, job, kCluster, calibration).total / report.step_s, 1, 1e-9);
}

TEST(Learning, UnexpectedResidentMemoryCountsAsTransient) {
  const JobSpec job = stories_job();
  const Plan plan = uniform_plan(job, {1, 1}, 4, 8);
  StepReport report = report_of(0, plan, job, kCluster, all_devices(kCluster), machine(0.01));
  const Bytes extra(20 << 20);
  report.peak_bytes[{0, 1}] += extra;
  report.resident_bytes[{0, 1}] += extra;
  const Calibration calibration = learned({}, report, plan, job, kCluster);
  EXPECT_GE(predict_memory(plan, job, calibration).peak.at({0, 1}).count() + 4,
            report.peak_bytes.at({0, 1}).count());
}

TEST(Learning, APrimitiveTeachesItsLargerPart) {
  Calibration calibration;
  calibration.observe(OpClass::kSwitch, Seconds(1), Seconds(1));
  calibration.observe(OpClass::kTransfer, Seconds(1), Seconds(1));
  TransitionDag dag;
  dag.primitives.resize(2);
  dag.primitives[0].set_up = dag.primitives[1].set_up = Seconds(1);
  dag.primitives[1].transfer = Seconds(10);
  TransitionReport report;
  report.primitives = {{.id = 0, .measured = Seconds(2)}, {.id = 1, .measured = Seconds(22)}};
  calibration = learned(calibration, dag, report);
  EXPECT_LT(calibration.efficiency(OpClass::kSwitch), 1);
  EXPECT_GT(calibration.efficiency(OpClass::kSwitch), 0.5);
  EXPECT_LT(calibration.efficiency(OpClass::kTransfer), 1);
  EXPECT_GT(calibration.efficiency(OpClass::kTransfer), 0.5);
}

}  // namespace
}  // namespace nereus
