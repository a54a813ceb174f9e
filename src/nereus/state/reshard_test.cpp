#include "nereus/state/reshard.h"

#include <gmock/gmock.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "nereus/base/error.h"
#include "nereus/state/testing.h"

namespace nereus {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr ModelStage kActorTraining{Role::kActor, Stage::kTraining};

struct Case {
  StateSchema schema;
  EmuCollection sources;
  EmuCollection targets;
};

// The sources may mix layouts, as they do half-way through a transition.
Case random_case() {
  const ModelUse model = testing::random_model();
  const auto pool = testing::devices_on_hosts_of_four(testing::pick_between(2, 16));
  const ModelStage from = testing::pick({kActorTraining, {Role::kActor, Stage::kGeneration}});
  Case c{state_schema(model, kActorTraining),
         {},
         units_of(testing::random_stage(model.spec, kActorTraining, testing::shuffled(pool)))};
  const auto devices = testing::shuffled(pool);
  const auto middle = devices.begin() + testing::pick_between(1, static_cast<int>(pool.size()) - 1);
  for (const std::vector<DeviceId>& part :
       {std::vector(devices.begin(), middle), std::vector(middle, devices.end())}) {
    for (Emu& unit : units_of(testing::random_stage(model.spec, from, part))) {
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

// Adds one to every element of `box` in a row-major count of the tensor, in which all boxes have
// one or two dimensions.
void count_elements(const Box& box, const TensorSpec& tensor, std::vector<int>& counts) {
  const int64_t columns = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
  const int64_t first = tensor.shape.size() == 2 ? box.begin[1] : 0;
  const int64_t last = tensor.shape.size() == 2 ? box.end[1] : 1;
  for (int64_t row = box.begin[0]; row < box.end[0]; ++row) {
    for (int64_t column = first; column < last; ++column) ++counts[row * columns + column];
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
