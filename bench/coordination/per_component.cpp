#include <algorithm>
#include <latch>
#include <random>
#include <thread>

#include "coordination/device_locks.h"
#include "coordination/migration.h"
#include "coordination/trial_state.h"
#include "nereus/core/base/error.h"
#include "nereus/core/transition/local_dag.h"
#include "nereus/runtime/engine/stopwatch.h"

namespace nereus::bench {

namespace {

constexpr std::chrono::milliseconds kWatchEvery{20};
constexpr Seconds kTimeLimit(20);

// One model-stage that migrates by itself; used by its own thread.
class ComponentMigration {
 public:
  ComponentMigration(const Trial& trial, size_t number, const JobSpec& job,
                     const WorkerPool& workers, DeviceLocks& locks)
      : number_(static_cast<int>(number)),
        to_(trial.to.stages[number]),
        launch_(trial.launch[number]),
        order_(trial.order_seeds[number]),
        state_({{trial.from.stages[number]}}, job, workers),
        dag_(compile_local(trial.from.stages[number], to_, Passage::kPrimitives, units_)),
        locks_(locks) {
    for (const Emu& unit : units_of(trial.from.stages[number])) {
      for (const DeviceId device : unit.devices) locks_.acquire(number_, device);
    }
    // Create before destroy.
    std::ranges::stable_partition(dag_.primitives, [](const Primitive& primitive) {
      return primitive.kind != PrimitiveKind::kDestroy;
    });
  }

  void run() {
    std::this_thread::sleep_for(std::chrono::duration<double>(launch_.count()));
    for (const Primitive& primitive : dag_.primitives) {
      take_devices(primitive);
      execute(primitive);
    }
  }
  bool is_intact() const { return state_.is_intact({{to_}}); }

 private:
  EmuCollection pick(const std::vector<int>& indices) const {
    EmuCollection picked;
    for (const int index : indices) picked.push_back(units_[index]);
    return picked;
  }

  void take_devices(const Primitive& primitive) {
    for (const Emu& target : pick(primitive.targets)) {
      std::vector<DeviceId> devices = target.devices;
      std::ranges::shuffle(devices, order_);
      for (const DeviceId device : devices) locks_.acquire(number_, device);
    }
  }

  void execute(const Primitive& primitive) {
    StateStore& store = state_.store();
    const StateSchema schema = state_.schema(primitive.model_stage);
    const EmuCollection targets = pick(primitive.targets);
    if (!targets.empty()) {
      const EmuCollection sources = pick(primitive.sources);
      for (const Emu& target : targets) store.create(target, schema);
      store.copy(reshard(sources, targets, schema), sources, targets);
    }
    for (const Emu& freed : pick(primitive.frees)) {
      store.destroy(freed);
      for (const DeviceId device : freed.devices) {
        const bool kept = std::ranges::any_of(
            targets, [&](const Emu& target) { return index_of(target, device) >= 0; });
        if (!kept) locks_.release(number_, device);
      }
    }
  }

  int number_;
  StagePlan to_;
  Seconds launch_;
  std::mt19937_64 order_;
  TrialState state_;
  EmuCollection units_;
  LocalDag dag_;
  DeviceLocks& locks_;
};

// Waits for all to end; if a circle of waiting components stays for `patience`, or the time is up,
// makes everybody stop waiting, and returns the circle.
std::vector<std::string> watch(const std::latch& done, DeviceLocks& locks, Seconds patience) {
  std::vector<std::string> circle;
  const Stopwatch since_launch;
  Stopwatch since_change;
  while (!done.try_wait()) {
    std::this_thread::sleep_for(kWatchEvery);
    std::vector<std::string> now = locks.circle();
    if (now != circle || now.empty()) {
      circle = std::move(now);
      since_change = Stopwatch();
    }
    const bool stays = !circle.empty() && since_change.elapsed() >= patience;
    if (stays || since_launch.elapsed() >= kTimeLimit) {
      locks.abort();
      return circle;
    }
  }
  return {};
}

}  // namespace

Outcome migrate_per_component(const Trial& trial, const JobSpec& job, const Cluster& cluster,
                              Seconds patience) {
  const WorkerPool workers(cluster, Backend{});
  std::vector<std::string> names;
  for (const StagePlan& stage : trial.from.stages) names.push_back(to_string(stage.model_stage));
  DeviceLocks locks(names);
  std::vector<std::unique_ptr<ComponentMigration>> components;
  for (size_t c = 0; c < names.size(); ++c) {
    components.push_back(std::make_unique<ComponentMigration>(trial, c, job, workers, locks));
  }

  Outcome outcome;
  std::mutex mutex;  // of outcome
  const Stopwatch launched;
  {
    std::latch done(static_cast<ptrdiff_t>(components.size()));
    std::vector<std::jthread> threads;
    for (const auto& component : components) {
      threads.emplace_back([&] {
        try {
          component->run();
          const std::lock_guard lock(mutex);
          outcome.elapsed = std::max(outcome.elapsed, launched.elapsed());
        } catch (const std::exception& error) {
          const std::lock_guard lock(mutex);
          outcome.failure = error.what();
        }
        done.count_down();
      });
    }
    outcome.circle = watch(done, locks, patience);
  }
  if (!outcome.circle.empty()) {
    outcome.failure.clear();  // they only stopped because the circle was broken
    return outcome;
  }
  if (!outcome.failure.empty()) return outcome;
  outcome.completed =
      std::ranges::all_of(components, [](const auto& component) { return component->is_intact(); });
  if (!outcome.completed) outcome.failure = "state differs";
  return outcome;
}

}  // namespace nereus::bench
