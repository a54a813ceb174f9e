#include "nereus/core/state/residency.h"

#include <gmock/gmock.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>

#include "nereus/core/state/reshard.h"
#include "nereus/core/state/testing.h"

namespace nereus {
namespace {

struct Case {
  std::map<ModelStage, StateSchema> schemas;
  Plan from;
  Plan to;
  DevicePool pool;
};

std::vector<DeviceId> some_devices(int max_count) {
  return testing::devices_on_hosts_of_four(testing::pick_between(1, max_count));
}

// Plans on some of the devices each, and a pool that has those of the target, but not always all
// others.
Case random_case(const std::vector<DeviceId>& devices) {
  Case c;
  for (const ModelStage stage : {kActorGeneration, kActorTraining, kCriticTraining}) {
    ModelUse model = testing::random_model(true);
    c.schemas[stage] = state_schema(model, stage);
    for (Plan* plan : {&c.from, &c.to}) {
      plan->stages.push_back(
          testing::random_stage(model.spec, stage, testing::shuffled(devices), 3));
    }
  }
  std::vector<DeviceId> pool = devices_of(c.to).devices();
  for (const DeviceId device : devices) {
    if (testing::pick({true, false})) pool.push_back(device);
  }
  c.pool = DevicePool(pool);
  return c;
}

// By the moves that a transition would make between the same devices.
Bytes resident_by_boxes(const Case& c, const Plan& to) {
  Bytes resident;
  for (const auto& [stage, schema] : c.schemas) {
    const EmuCollection sources = units_of(at(c.from, stage)), targets = units_of(at(to, stage));
    resident += reshard(sources, targets, schema).resident;
  }
  return resident;
}

// Where each device of the target went; fails if two parts of it went to different places.
std::map<DeviceId, DeviceId> renaming(const Plan& before, const Plan& after) {
  std::map<DeviceId, DeviceId> renamed;
  for (size_t s = 0; s < before.stages.size(); ++s) {
    for (size_t u = 0; u < before.stages[s].units.size(); ++u) {
      for (size_t i = 0; i < before.stages[s].units[u].size(); ++i) {
        const DeviceId device = after.stages[s].units[u][i];
        RC_ASSERT(renamed.try_emplace(before.stages[s].units[u][i], device).first->second ==
                  device);
      }
    }
  }
  return renamed;
}

TEST(ResidentBytes, AreThoseThatReshardLeavesInPlace) {
  EXPECT_TRUE(rc::check([] {
    const Case c = random_case(some_devices(12));
    RC_ASSERT(resident_bytes(c.from, c.to, c.schemas) == resident_by_boxes(c, c.to));
  }));
}

TEST(Relabel, RenamesDevicesAndNeverLosesResidentBytes) {
  EXPECT_TRUE(rc::check([] {
    const Case c = random_case(some_devices(16));
    const Plan relabeled = relabel_for_residency(c.from, c.to, c.schemas, c.pool);
    RC_ASSERT(resident_bytes(c.from, relabeled, c.schemas) >=
              resident_bytes(c.from, c.to, c.schemas));
    std::set<DeviceId> used;
    std::map<int, int> host_of;
    for (const auto& [label, device] : renaming(c.to, relabeled)) {
      RC_ASSERT(c.pool.contains(device));
      RC_ASSERT(used.insert(device).second);
      RC_ASSERT(host_of.try_emplace(label.host, device.host).first->second == device.host);
    }
    Plan same = relabeled;
    for (size_t s = 0; s < same.stages.size(); ++s) same.stages[s].units = c.to.stages[s].units;
    RC_ASSERT(same == c.to);
    RC_ASSERT(relabel_for_residency(c.from, c.to, c.schemas, c.pool) == relabeled);
  }));
}

TEST(Relabel, IsTheBestOfAllRenamingsOfOneHost) {
  EXPECT_TRUE(rc::check([] {
    std::vector<DeviceId> devices;
    for (int i = testing::pick_between(1, 5); i > 0; --i) devices.push_back({0, i});
    const Case c = random_case(devices);
    std::vector<DeviceId> order = c.pool.devices();
    Bytes best;
    do {
      Plan other = c.to;
      for (StagePlan& stage : other.stages) {
        for (auto& unit : stage.units) {
          for (DeviceId& device : unit) {
            const auto label = std::ranges::find(c.pool.devices(), device);
            device = order[label - c.pool.devices().begin()];
          }
        }
      }
      best = std::max(best, resident_bytes(c.from, other, c.schemas));
    } while (std::ranges::next_permutation(order).found);
    const Plan relabeled = relabel_for_residency(c.from, c.to, c.schemas, c.pool);
    RC_ASSERT(resident_bytes(c.from, relabeled, c.schemas) == best);
  }));
}

TEST(Relabel, FindsTheHostWhereTheStateIs) {
  const StateSchema schema{{{"w", {8}, 0, 0, 8}}, 1, {{}}};
  const Plan from{{{kActorTraining, {2, 1}, {{{1, 2}, {1, 0}}}}}};
  const Plan to{{{kActorTraining, {2, 1}, {{{0, 0}, {0, 1}}}}}};
  const DevicePool pool({{0, 0}, {0, 1}, {1, 0}, {1, 1}, {1, 2}});
  const std::map<ModelStage, StateSchema> schemas{{kActorTraining, schema}};
  EXPECT_EQ(relabel_for_residency(from, to, schemas, pool), from);
  // Nothing to gain: as it was.
  EXPECT_EQ(relabel_for_residency(from, to, schemas, DevicePool({{0, 0}, {0, 1}})), to);
}

// Host 0 of the target would find most on host 1, but then host 1 would find nothing.
TEST(Relabel, StaysOnItsHostsIfThatIsBetterThanGreed) {
  const auto schema = [](int64_t size) { return StateSchema{{{"w", {size}, 0}}, 1, {{}}}; };
  const std::map<ModelStage, StateSchema> schemas{{kActorTraining, schema(10)},
                                                  {kCriticTraining, schema(11)},
                                                  {kReferenceInference, schema(10)}};
  const auto plan = [&](DeviceId actor, DeviceId critic, DeviceId reference) {
    return Plan{{{kActorTraining, {}, {{actor}}},
                 {kCriticTraining, {}, {{critic}}},
                 {kReferenceInference, {}, {{reference}}}}};
  };
  const Plan from = plan({0, 0}, {1, 0}, {1, 1});
  const DevicePool pool({{0, 0}, {0, 1}, {1, 0}, {1, 1}});
  EXPECT_EQ(relabel_for_residency(from, plan({0, 0}, {0, 1}, {1, 0}), schemas, pool),
            plan({0, 0}, {0, 1}, {1, 1}));
}

TEST(Relabel, RenamesNoMoreDevicesThanItGainsBy) {
  const std::map<ModelStage, StateSchema> schemas{{kActorTraining, {{{"w", {8}, 0}}, 1, {{}}}}};
  const Plan from{{{kActorTraining, {}, {{{0, 3}}}}}};
  const Plan to{{{kActorTraining, {}, {{{0, 0}}, {{0, 1}}, {{0, 2}}}}}};
  const DevicePool pool({{0, 0}, {0, 1}, {0, 2}, {0, 3}});
  int renamed = 0;
  for (const auto& [label, device] : renaming(to, relabel_for_residency(from, to, schemas, pool))) {
    renamed += label == device ? 0 : 1;
  }
  EXPECT_EQ(renamed, 1);
}

}  // namespace
}  // namespace nereus
