// A transition before it has an order: primitives with their costs, and what they need.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "nereus/core/cost/calibration.h"
#include "nereus/core/transition/local_dag.h"
#include "nereus/core/transition/schedule.h"
#include "nereus/core/transition/transfer_cost.h"

namespace nereus {

struct Draft {
  EmuCollection units;
  std::vector<Primitive> primitives;  // ids are indices; by stage order, then role
  ScheduleProblem problem;            // a task for each
};

// What was learned of how much longer than ideally the two parts of a primitive take.
struct Slowness {
  explicit Slowness(const Calibration& calibration)
      : set_up(1 / calibration.efficiency(OpClass::kSwitch)),
        transfer(1 / calibration.efficiency(OpClass::kTransfer)) {}
  double set_up;
  double transfer;
};
Seconds predicted_duration(const Primitive& primitive, const Slowness& slowness);

// Keeps byte tables of a job's model-stages. Not thread-safe.
class Drafter final {
 public:
  Drafter(const JobSpec& job, const Cluster& cluster);
  Drafter(const Drafter&) = delete;
  Drafter& operator=(const Drafter&) = delete;

  // The model-stages that change, each by its passage. A device has room for `capacity`, of which
  // `reserved` bytes are taken.
  Draft draft(const Plan& from, const Plan& to, const std::map<ModelStage, Passage>& passages,
              const Calibration& calibration, Bytes capacity,
              const std::map<DeviceId, Bytes>& reserved);

  // True if one route moves fewer bytes than the four primitives would, or as many in less time.
  bool worth_fusing(const StagePlan& from, const StagePlan& to);
  // A host whose memory holds one copy of the model-stage, its own if possible.
  std::optional<int> staging_host(const StagePlan& stage);
  Bytes state_bytes(ModelStage model_stage);

  const Cluster& cluster() const { return cluster_; }
  const DeviceNumbers& numbers() const { return numbers_; }

 private:
  void add_stage(Draft& draft, const StagePlan& from, const StagePlan& to, Passage passage,
                 const Slowness& slowness);
  std::vector<DeviceUse> uses_of(const Primitive& primitive, std::span<const Emu> units,
                                 const TransferCost& cost);
  DeviceUse use_of(StageTables& tables, int device, Bytes staging) const;
  void fill_devices(ScheduleProblem& problem, const Plan& from, Bytes capacity,
                    const std::map<DeviceId, Bytes>& reserved);

  Cluster cluster_;
  DeviceNumbers numbers_;
  TransferMeter meter_;
  std::map<ModelStage, StageTables> tables_;
  // Scratch of uses_of(), by device number.
  std::vector<std::optional<Holding>> taken_;
  std::vector<std::optional<Holding>> freed_;
  std::vector<int> touched_;
};

}  // namespace nereus
