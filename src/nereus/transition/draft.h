// A transition before it has an order: primitives with their costs, and what they need.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "nereus/cost/calibration.h"
#include "nereus/transition/local_dag.h"
#include "nereus/transition/schedule.h"
#include "nereus/transition/transfer_cost.h"

namespace nereus {

struct Draft {
  EmuCollection units;
  std::vector<Primitive> primitives;  // ids are indices; by stage order, then role
  std::vector<std::vector<int>> needs;
  std::vector<TransferCost> costs;
};

// set_up and transfer of a primitive as they take in truth, by what was learned.
Seconds predicted_duration(const Primitive& primitive, const Calibration& calibration);

// Keeps byte tables of a job's model-stages. Not thread-safe.
class Drafter final {
 public:
  Drafter(const JobSpec& job, const Cluster& cluster);
  Drafter(const Drafter&) = delete;
  Drafter& operator=(const Drafter&) = delete;

  // The model-stages that change, each by its passage, in the order of `passages`' stages.
  Draft draft(const Plan& from, const Plan& to, const std::map<ModelStage, Passage>& passages);
  ScheduleProblem problem(const Plan& from, const Draft& draft, const Calibration& calibration,
                          const std::map<DeviceId, Bytes>& reserved);

  // True if one route moves fewer bytes than the four primitives would, or as many in less time.
  bool worth_fusing(const StagePlan& from, const StagePlan& to);
  // A host whose memory holds one copy of the model-stage, its own if possible.
  std::optional<int> staging_host(const StagePlan& stage);
  Bytes state_bytes(ModelStage model_stage);

  const Cluster& cluster() const { return cluster_; }
  const DeviceNumbers& numbers() const { return numbers_; }

 private:
  void add_stage(Draft& draft, const StagePlan& from, const StagePlan& to, Passage passage);
  std::vector<DeviceUse> uses_of(const Draft& draft, const Primitive& primitive);
  DeviceUse use_of(StageTables& tables, int device, Bytes staging) const;

  Cluster cluster_;
  DeviceNumbers numbers_;
  TransferMeter meter_;
  std::map<ModelStage, StageTables> tables_;
  // Scratch of uses_of(), by device number.
  std::vector<std::optional<Holding>> taken_;
  std::vector<std::optional<Holding>> freed_;
};

}  // namespace nereus
