#include "nereus/core/state/sharding.h"

#include <gmock/gmock.h>
#include <rapidcheck.h>

#include "nereus/core/state/testing.h"

namespace nereus {
namespace {

using ::testing::ElementsAre;

TEST(StageLayers, GivesTheFirstStagesOneBlockMore) {
  EXPECT_EQ(stage_layers(7, 3, 0), (LayerRange{0, 3}));
  EXPECT_EQ(stage_layers(7, 3, 1), (LayerRange{3, 5}));
  EXPECT_EQ(stage_layers(7, 3, 2), (LayerRange{5, 7}));
}

TEST(TpGroups, CutsEvenlyOrShares) {
  EXPECT_EQ(tp_groups_of(8, 4, 1), (LayerRange{2, 4}));
  EXPECT_EQ(tp_groups_of(10, 4, 3), (LayerRange{7, 10}));
  EXPECT_EQ(tp_groups_of(2, 4, 1), (LayerRange{0, 1}));
  EXPECT_EQ(tp_groups_of(2, 4, 2), (LayerRange{1, 2}));
}

TEST(Shard, CutsRowsOfItsPipelineStageOnly) {
  const TensorSpec tensor{"q_proj", {8, 3}, 2, 0, 4};
  EXPECT_EQ(shard(tensor, 4, {2, 2}, {1, 1}), (Box{{4, 0}, {8, 3}}));
  EXPECT_EQ(shard(tensor, 4, {2, 2}, {1, 0}), std::nullopt);
}

TEST(Shard, CutsExpertsByGroupAndWithinIt) {
  TensorSpec experts{"gate_proj", {4, 6, 3}, 0, 1, 6};
  experts.ep_dim = 0;
  const Layout layout{.tp = 4, .ep = 2};
  EXPECT_EQ(shard(experts, 1, layout, {.tp = 0}), (Box{{0, 0, 0}, {2, 3, 3}}));
  EXPECT_EQ(shard(experts, 1, layout, {.tp = 1}), (Box{{0, 3, 0}, {2, 6, 3}}));
  EXPECT_EQ(shard(experts, 1, layout, {.tp = 2}), (Box{{2, 0, 0}, {4, 3, 3}}));
  // Whatever has no experts is cut as if ep were 1.
  EXPECT_EQ(shard({"q_proj", {8, 3}, 0, 0, 4}, 1, layout, {.tp = 2}), (Box{{4, 0}, {6, 3}}));
}

TEST(Shard, OptimizerStateIsHeldOnceByTheZeroRanks) {
  const TensorSpec tensor{"q_proj", {8, 3}, 0, 0, 4};
  const Layout layout{.tp = 2, .zero = 3};
  for (int zero = 0; zero < 3; ++zero) {
    EXPECT_EQ(shard(tensor, 1, layout, {.tp = 1, .zero = zero}), (Box{{4, 0}, {8, 3}}));
  }
  const auto master = [&](int zero) {
    return shard(tensor, 1, layout, {.tp = 1, .zero = zero}, StateKind::kMaster);
  };
  EXPECT_EQ(master(0), (Box{{4, 0}, {5, 3}}));
  EXPECT_EQ(master(1), (Box{{5, 0}, {6, 3}}));
  EXPECT_EQ(master(2), (Box{{6, 0}, {8, 3}}));
  // One row for three ranks.
  EXPECT_EQ(shard({"score", {1, 3}, 0}, 1, layout, {.zero = 1}, StateKind::kExpAvg), std::nullopt);
}

TEST(Chunks, AreTheEmbeddingTheBlocksAndTheHead) {
  EXPECT_EQ(num_chunks(3), 5);
  EXPECT_EQ(chunk_of({"embed", {1}, kEmbeddingLayer}, 3), 0);
  EXPECT_EQ(chunk_of({"w", {1}, 2}, 3), 3);
  EXPECT_EQ(chunk_of({"norm", {1}, kHeadLayer}, 3), 4);
  EXPECT_EQ(stage_chunks(3, 1, 0), (LayerRange{0, 5}));
  EXPECT_EQ(stage_chunks(3, 2, 0), (LayerRange{0, 3}));
  EXPECT_EQ(stage_chunks(3, 2, 1), (LayerRange{3, 5}));
}

TEST(Holders, AreSeveralForSharedKvHeadsAndTiedEmbeddings) {
  const TensorSpec kv{"k_proj", {4, 3}, 0, 0, 2};
  EXPECT_THAT(holders(kv, 1, {4, 1}, {3, 0}), ElementsAre(Rank{2, 0}, Rank{3, 0}));
  EXPECT_TRUE(is_primary(kv, 1, {4, 1}, {2, 0}));
  EXPECT_FALSE(is_primary(kv, 1, {4, 1}, {3, 0}));
  const TensorSpec tied{"embed", {9, 3}, kEmbeddingLayer, 0, 9, true};
  EXPECT_THAT(holders(tied, 4, {2, 3}, {1, 2}), ElementsAre(Rank{1, 0}, Rank{1, 2}));
  EXPECT_TRUE(holders(tied, 4, {2, 3}, {1, 1}).empty());
}

TEST(Sharding, PrimaryShardsAreThePartitionOfEveryTensor) {
  EXPECT_TRUE(rc::check([] {
    const ModelSpec spec = testing::random_model(true).spec;
    const Layout layout = testing::random_layout(spec, 24, 4);
    const StateKind kind = testing::pick({StateKind::kWeights, StateKind::kMaster});
    for (const TensorSpec& tensor : tensors(spec)) {
      std::vector<Box> primary;
      for (int index = 0; index < layout.devices(); ++index) {
        const Rank rank = rank_at(layout, index);
        const auto box = shard(tensor, spec.num_layers, layout, rank, kind);
        if (box) RC_ASSERT(contains(whole(tensor.shape), *box));
        if (is_primary(tensor, spec.num_layers, layout, rank, kind)) primary.push_back(*box);
      }
      int64_t sum = 0;
      for (size_t i = 0; i < primary.size(); ++i) {
        sum += volume(primary[i]);
        for (size_t k = 0; k < i; ++k) RC_ASSERT(!intersect(primary[i], primary[k]));
      }
      RC_ASSERT(sum == element_count(tensor));
    }
  }));
}

// What makes Split and Merge cheap: a finer cut refines a coarser one.
TEST(Sharding, FinerTpCutsNestInCoarserOnes) {
  EXPECT_TRUE(rc::check([] {
    const int64_t groups = *rc::gen::inRange<int64_t>(1, 200);
    const int tp = testing::pick({1, 2, 3, 4});
    const int factor = testing::pick({2, 3, 4});
    const int rank = testing::pick_between(0, tp * factor - 1);
    RC_PRE(groups >= tp * factor);
    const LayerRange fine = tp_groups_of(groups, tp * factor, rank);
    const LayerRange coarse = tp_groups_of(groups, tp, rank / factor);
    RC_ASSERT(coarse.begin <= fine.begin && fine.end <= coarse.end);
  }));
}

}  // namespace
}  // namespace nereus
