#include "nereus/core/state/reshard.h"

#include <gmock/gmock.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "nereus/core/base/error.h"
#include "nereus/core/state/testing.h"

namespace nereus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Case {
  StateSchema schema;
  EmuCollection sources;
  EmuCollection targets;
};

// The sources may mix layouts, as they do half-way through a transition.
Case random_case() {
  const ModelUse model = testing::random_model(true);
  const auto pool = testing::devices_on_hosts_of_four(testing::pick_between(2, 16));
  const ModelStage from = testing::pick({kActorTraining, kActorGeneration});
  Case c{state_schema(model, kActorTraining),
         {},
         units_of(testing::random_stage(model.spec, kActorTraining, testing::shuffled(pool), 3))};
  const auto devices = testing::shuffled(pool);
  const auto middle = devices.begin() + testing::pick_between(1, static_cast<int>(pool.size()) - 1);
  for (const std::vector<DeviceId>& part :
       {std::vector(devices.begin(), middle), std::vector(middle, devices.end())}) {
    for (Emu& unit : units_of(testing::random_stage(model.spec, from, part, 3))) {
      c.sources.push_back(std::move(unit));
    }
  }
  return c;
}

// The box of a tensor that a unit's device holds, if any.
std::optional<Box> held(const Case& c, const Emu& unit, DeviceId device, StatePart part,
                        int tensor) {
  const int index = index_of(unit, device);
  if (index < 0) return std::nullopt;
  return shard(c.schema.tensors[tensor], c.schema.num_layers, unit.layout,
               rank_at(unit.layout, index),
               part == StatePart::kWeights ? StateKind::kWeights : StateKind::kMaster);
}

// Adds one to every element of `box` in a row-major count of the tensor.
void count_elements(const Box& box, const TensorSpec& tensor, std::vector<int>& counts) {
  std::vector<int64_t> at = box.begin;
  for (int64_t left = volume(box); left > 0; --left) {
    int64_t offset = 0;
    for (size_t d = 0; d < at.size(); ++d) offset = offset * tensor.shape[d] + at[d];
    ++counts[offset];
    for (size_t d = at.size(); d-- > 0 && ++at[d] == box.end[d];) at[d] = box.begin[d];
  }
}

// Element by element, independent of box arithmetic: what the moves write is the shard, each once.
TEST(Reshard, CoversEveryTargetElementExactlyOnce) {
  EXPECT_TRUE(rc::check([] {
    const Case c = random_case();
    using Key = std::tuple<int, DeviceId, int, StatePart>;  // target unit, device, tensor
    std::map<Key, std::vector<int>> wanted;
    std::map<Key, std::vector<int>> written;
    const auto counts = [&](std::map<Key, std::vector<int>>& table, const Key& key) -> auto& {
      auto& entry = table[key];
      entry.resize(element_count(c.schema.tensors[std::get<2>(key)]));
      return entry;
    };
    for (int unit = 0; unit < static_cast<int>(c.targets.size()); ++unit) {
      for (const DeviceId device : c.targets[unit].devices) {
        for (int tensor = 0; tensor < static_cast<int>(c.schema.tensors.size()); ++tensor) {
          for (const StatePart part : kStateParts) {
            const auto box = held(c, c.targets[unit], device, part, tensor);
            if (!box) continue;
            count_elements(*box, c.schema.tensors[tensor],
                           counts(wanted, {unit, device, tensor, part}));
          }
        }
      }
    }
    for (const Move& move : reshard(c.sources, c.targets, c.schema).moves) {
      count_elements(move.box, c.schema.tensors[move.tensor],
                     counts(written, {move.target_unit, move.to, move.tensor, move.part}));
    }
    RC_ASSERT(written == wanted);
  }));
}

TEST(Reshard, ReadsOnlyWhatIsThereAndFromTheNearest) {
  EXPECT_TRUE(rc::check([] {
    const Case c = random_case();
    for (const Move& move : reshard(c.sources, c.targets, c.schema).moves) {
      const auto source =
          held(c, c.sources.at(move.source_unit), move.from, move.part, move.tensor);
      RC_ASSERT(source.has_value());
      RC_ASSERT(contains(*source, move.box));
      for (const Emu& unit : c.sources) {
        for (const DeviceId device : unit.devices) {
          const auto other = held(c, unit, device, move.part, move.tensor);
          if (!other || !intersect(*other, move.box)) continue;
          RC_ASSERT(device != move.to || move.from == move.to);
          RC_ASSERT(device.host != move.to.host || move.from.host == move.to.host);
        }
      }
    }
  }));
}

TEST(Reshard, CountsBytesAndIsDeterministic) {
  EXPECT_TRUE(rc::check([] {
    const Case c = random_case();
    const ReshardPlan plan = reshard(c.sources, c.targets, c.schema);
    RC_ASSERT(reshard(c.sources, c.targets, c.schema).moves == plan.moves);
    Bytes wanted;
    for (const Emu& unit : c.targets) {
      for (int i = 0; i < unit.layout.devices(); ++i) {
        wanted += state_bytes(c.schema, unit.layout, i);
      }
    }
    RC_ASSERT(plan.moved + plan.resident == wanted);
    Bytes crossing;
    for (const LinkLoad& load : link_loads(plan, c.schema)) {
      RC_ASSERT(load.from != load.to);
      crossing += load.bytes;
    }
    RC_ASSERT(crossing == plan.moved);
    RC_ASSERT(std::ranges::is_sorted(plan.moves, {}, [&](const Move& move) {
      return std::tuple(c.schema.tensors[move.tensor].layer, move.tensor, move.part,
                        move.target_unit, index_of(c.targets[move.target_unit], move.to));
    }));
  }));
}

TEST(Reshard, SpreadsTheLoadOverReplicas) {
  const StateSchema schema{{{"a", {8, 2}, 0}, {"b", {8, 2}, 0}}, 1, {{}}};
  const EmuCollection sources{{kActorTraining, {1, 1}, {{0, 0}}},
                              {kActorTraining, {1, 1}, {{0, 1}}}};
  const EmuCollection targets{{kActorTraining, {1, 1}, {{0, 2}}}};
  const ReshardPlan plan = reshard(sources, targets, schema);
  ASSERT_THAT(plan.moves, SizeIs(2));
  EXPECT_EQ(plan.moves[0].from, (DeviceId{0, 0}));
  EXPECT_EQ(plan.moves[1].from, (DeviceId{0, 1}));
}

TEST(Reshard, TakesWholeShardsInOneMove) {
  const StateSchema schema{{{"w", {8, 2}, 0, 0, 8}}, 1, {{}}};
  const EmuCollection sources{{kActorTraining, {4, 1}, {{0, 0}, {0, 1}, {0, 2}, {0, 3}}}};
  const EmuCollection targets{{kActorTraining, {2, 1}, {{0, 0}, {0, 1}}}};
  // 0:0 keeps rows 0-1 and gets 2-3; 0:1 needs rows 4-7, of which it has none.
  EXPECT_THAT(reshard(sources, targets, schema).moves, SizeIs(4));
}

// Rows from one, columns from the other: neither walk along one dimension would do.
TEST(Reshard, CoversBoxesCutInTwoDimensions) {
  const StateSchema schema{
      {{"o_proj", {8, 8}, 0, 1, 8}}, 1, {{StateKind::kExpAvg, DType::kFloat32}}};
  const EmuCollection sources{{kActorTraining, {.zero = 2}, {{0, 0}, {0, 1}}}};
  const EmuCollection targets{{kActorTraining, {.tp = 2}, {{0, 0}, {0, 1}}}};
  const ReshardPlan plan = reshard(sources, targets, schema);
  EXPECT_THAT(plan.moves, SizeIs(4));
  EXPECT_EQ(plan.resident, Bytes(2 * 16 * 4));
  EXPECT_EQ(plan.moved, Bytes(2 * 16 * 4));
}

TEST(Reshard, PrefersAnyDeviceToHostMemory) {
  const StateSchema schema{{{"w", {4}, 0}}, 1, {{}}};
  const EmuCollection sources{{kActorTraining, {}, {{0, kHostMemory}}},
                              {kActorTraining, {}, {{1, 0}}}};
  const EmuCollection targets{{kActorTraining, {}, {{0, 0}}}};
  const auto from = [&](const EmuCollection& units) {
    return reshard(units, targets, schema).moves.at(0).from;
  };
  EXPECT_EQ(from(sources), (DeviceId{1, 0}));
  EXPECT_EQ(from({sources[0]}), (DeviceId{0, kHostMemory}));
}

TEST(Reshard, ReadsOnlyLayersThatAreHeld) {
  const StateSchema schema{{{"a", {4}, 0}, {"b", {4}, 1}}, 2, {{}}};
  const EmuCollection sources{{kActorTraining, {}, {{0, 0}}}, {kActorTraining, {}, {{0, 1}}}};
  const EmuCollection targets{{kActorTraining, {}, {{0, 0}}}};
  const Holds holds = [](int unit, DeviceId /*device*/, int layer) { return unit == layer; };
  const ReshardPlan plan = reshard(sources, targets, schema, holds);
  ASSERT_THAT(plan.moves, SizeIs(2));
  EXPECT_EQ(plan.moves[0].source_unit, 0);
  EXPECT_EQ(plan.moves[1].source_unit, 1);
}

TEST(MissingState, NamesPartTensorAndBox) {
  const StateSchema schema = {
      {{"a", {4}, 0}, {"b", {4, 2}, 1, 0, 4}},
      2,
      {{StateKind::kWeights, DType::kFloat32}, {StateKind::kExpAvg, DType::kFloat32}}};
  const EmuCollection sources{
      {kActorTraining, {.tp = 2, .zero = 2}, {{0, 0}, {0, 1}, {0, 2}, {0, 3}}}};
  EXPECT_TRUE(missing_state(sources, schema).empty());
  const Holds without_3 = [](int /*unit*/, DeviceId device, int /*layer*/) {
    return device.index != 3;
  };
  EXPECT_THAT(missing_state(sources, schema, without_3),
              ElementsAre("no unit holds the optimizer state of b [3:4, 0:2]"));
}

// After random losses, reshard() succeeds exactly if nothing is missing.
TEST(MissingState, IsWhatReshardCannotCover) {
  EXPECT_TRUE(rc::check([] {
    Case c = random_case();
    c.targets = {{kActorTraining, {}, {{9, 0}}}};
    std::set<std::tuple<int, DeviceId, int>> lost;
    for (int i = testing::pick_between(0, 20); i > 0; --i) {
      const int unit = testing::pick_between(0, static_cast<int>(c.sources.size()) - 1);
      const DeviceId device = *rc::gen::elementOf(c.sources[unit].devices);
      lost.emplace(unit, device, testing::pick_between(-1, c.schema.num_layers - 1));
    }
    const Holds holds = [&](int unit, DeviceId device, int layer) {
      return !lost.contains({unit, device, layer});
    };
    bool covered = true;
    try {
      reshard(c.sources, c.targets, c.schema, holds);
    } catch (const Error&) {
      covered = false;
    }
    RC_ASSERT(covered == missing_state(c.sources, c.schema, holds).empty());
  }));
}

TEST(Reshard, NamesWhatNoSourceHolds) {
  const StateSchema schema{{{"lost.weight", {4, 4}, 0}}, 1, {{}}};
  const EmuCollection targets{{kActorTraining, {1, 1}, {{0, 0}}}};
  try {
    reshard({}, targets, schema);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    EXPECT_THAT(error.what(), HasSubstr("lost.weight [0:4, 0:4]"));
  }
}

}  // namespace
}  // namespace nereus
