// The devices at work: workers, the state they hold, and the engines of the plan in force.
#pragma once

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "nereus/core/job/job.h"
#include "nereus/runtime/engine/state_store.h"
#include "nereus/runtime/engine/unit_engine.h"

namespace nereus {

// Used by one thread at a time, but for run() and what makes room for it: these may be called by
// several, for model-stages that have no device in common.
class Runtime final {
 public:
  Runtime(const Cluster& cluster, const Backend& backend, std::map<Role, ModelUse> models);

  StateStore& store() { return store_; }
  const StateStore& store() const { return store_; }
  const Plan& plan() const { return plan_; }
  StateSchema schema(ModelStage model_stage) const;
  const ModelSpec& model(Role role) const { return models_.at(role).spec; }

  // Makes the units of a model-stage, with these weights and no optimizer step behind them.
  void create(const StagePlan& stage, const TensorMap& weights);
  // Begins to make a plan's communicators in the background, so that adopt() of it finds them.
  void prepare(Plan plan);
  // Puts a plan in force whose units all exist in the store: connects them, and lets generation
  // units use the training units' bytes wherever those are the same shards.
  void adopt(Plan plan);
  // Takes the engines down, so that state may be moved. adopt() brings them back.
  void release();
  // The same, but generation goes on.
  void release_idle();
  // Puts a plan in force that differs from the state in the store in its generation units only:
  // those are made anew, from the training weights.
  void remake_generation(Plan plan);

  // Runs body(engine, unit number) on every device of a model-stage at once. Throws what a device
  // threw. Returns the time by class, means over the devices; local work counts as `local`.
  using Body = std::function<void(UnitEngine& engine, int unit)>;
  std::map<OpClass, Seconds> run(ModelStage model_stage, OpClass local, const Body& body);

  // After passes over model-stages have failed, which has aborted communicators: new ones for these
  // and for whatever shares their devices.
  void restart(const std::vector<ModelStage>& model_stages);
  // After a pass over a model-stage that ran out of memory: the plan now has half its micro-batch,
  // and engines with new communicators, so that the pass may be tried again. False, and nothing
  // done, if the micro-batch is 1 or the pass has changed weights already.
  bool halve_micro_batch(ModelStage model_stage, int64_t updates_before);
  // After generation ran out of memory: the plan now has twice the waves, and engines with new
  // communicators. False, and nothing done, if that were more than the `responses` of all units.
  bool double_waves(size_t responses);
  // Optimizer steps applied to a model-stage: the most on any of its devices.
  int64_t updates(ModelStage model_stage) const;
  // Of a model-stage's weights, which all its units have.
  uint64_t version(ModelStage model_stage) const;

  // Brings the actor's generation weights up to its training weights: nothing to do for aliased
  // units, a resharding copy for others.
  void synchronise_generation();

  // Bytes on each device of the cluster: highest since reset_peaks(), and now.
  std::map<DeviceId, Bytes> peaks() const;
  std::map<DeviceId, Bytes> current() const;
  void reset_peaks();

 private:
  using StageComms = std::map<ModelStage, std::map<DeviceId, UnitComms>>;
  struct Prepared {
    Plan plan;
    std::future<StageComms> comms;
  };

  StageComms connect_all(const Plan& plan);
  void alias_generation();
  void start_engines(const StagePlan& stage, std::map<DeviceId, UnitComms> comms);
  std::map<Role, ModelUse> models_;
  DevicePool devices_;
  WorkerPool workers_;
  CommunicatorCache communicators_;
  StateStore store_;
  Plan plan_;
  std::map<std::pair<ModelStage, DeviceId>, std::unique_ptr<UnitEngine>> engines_;
  std::mutex restarting_;
  std::optional<Prepared> prepared_;
  std::future<void> trimming_;  // giving up communicators takes long, and nobody waits for it
  ReshardPlan weight_sync_;     // moves to generation devices that are not aliased
};

}  // namespace nereus
