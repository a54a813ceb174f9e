#include "nereus/core/state/overlap.h"

#include <gmock/gmock.h>
#include <rapidcheck.h>

#include "nereus/core/state/testing.h"

namespace nereus {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

struct Case {
  StateSchema schema;
  Layout from;
  Layout to;
};

Case random_case() {
  const ModelUse model = testing::random_model(true);
  const ModelStage stage = testing::pick({kActorTraining, kActorGeneration});
  const int zero = stage == kActorTraining ? 4 : 1;
  return {state_schema(model, stage), testing::random_layout(model.spec, 16, zero),
          testing::random_layout(model.spec, 16, zero)};
}

// Tensor by tensor and kind by kind.
Bytes common_by_boxes(const Case& c, int from_index, int to_index) {
  int64_t bytes = 0;
  for (const TensorSpec& tensor : c.schema.tensors) {
    for (const StateComponent& component : c.schema.components) {
      const auto a =
          shard(tensor, c.schema.num_layers, c.from, rank_at(c.from, from_index), component.kind);
      const auto b =
          shard(tensor, c.schema.num_layers, c.to, rank_at(c.to, to_index), component.kind);
      const auto common = a && b ? intersect(*a, *b) : std::nullopt;
      if (common) bytes += volume(*common) * size_of(component.dtype).count();
    }
  }
  return Bytes(bytes);
}

TEST(OverlapTable, EqualsIntersectedBoxes) {
  EXPECT_TRUE(rc::check([] {
    const Case c = random_case();
    const OverlapTable table(summarize(c.schema), c.from, c.to);
    for (int to = 0; to < c.to.devices(); ++to) {
      RC_ASSERT(table.rank_bytes(to) == state_bytes(c.schema, c.to, to));
      for (int from = 0; from < c.from.devices(); ++from) {
        RC_ASSERT(table.common(from, to) == common_by_boxes(c, from, to));
      }
    }
  }));
}

TEST(LayerBytes, EqualTheBoxesOfEachChunk) {
  EXPECT_TRUE(rc::check([] {
    const Case c = random_case();
    const SchemaSummary summary = summarize(c.schema);
    for (int index = 0; index < c.to.devices(); ++index) {
      std::vector<Bytes> wanted(c.schema.num_layers + 2);
      for (const TensorSpec& tensor : c.schema.tensors) {
        const StateSchema only{{tensor}, c.schema.num_layers, c.schema.components};
        wanted[chunk_of(tensor, c.schema.num_layers)] += state_bytes(only, c.to, index);
      }
      RC_ASSERT(layer_bytes(summary, c.to, index) == wanted);
    }
  }));
}

TEST(LayerBytes, OfATiedModelHaveTheEmbeddingOnBothEnds) {
  const StateSchema schema{{{"embed", {4, 2}, kEmbeddingLayer, 0, 4, true},
                            {"w", {8}, 0},
                            {"w", {8}, 1},
                            {"norm", {2}, kHeadLayer}},
                           2,
                           {{StateKind::kWeights, DType::kFloat32}}};
  const SchemaSummary summary = summarize(schema);
  EXPECT_THAT(layer_bytes(summary, {2, 2}, 0),
              ElementsAre(Bytes(16), Bytes(32), Bytes(0), Bytes(0)));
  EXPECT_THAT(layer_bytes(summary, {2, 2}, 2),
              ElementsAre(Bytes(16), Bytes(0), Bytes(32), Bytes(8)));
}

TEST(SchemaSummary, GroupsTheTensorsOfAllLayers) {
  std::vector<TensorSpec> tensors;
  for (int layer = 0; layer < 40; ++layer) tensors.push_back({"w", {8}, layer});
  const SchemaSummary summary = summarize({tensors, 40, {{}}});
  ASSERT_THAT(summary.groups, SizeIs(1));
  EXPECT_EQ(summary.groups[0].before.back(), 40);
}

}  // namespace
}  // namespace nereus
