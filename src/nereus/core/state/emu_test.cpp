#include "nereus/core/state/emu.h"

#include <gmock/gmock.h>

#include "nereus/core/state/testing.h"

namespace nereus {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

ModelUse small_model(DType weights) {
  ModelSpec spec;
  spec.vocab_size = 16;
  spec.hidden_size = 4;
  spec.intermediate_size = 8;
  spec.num_layers = 2;
  spec.num_heads = 2;
  spec.num_kv_heads = 1;
  spec.head_dim = 2;
  return {spec, weights};
}

TEST(StateSchema, TrainingKeepsMasterAndMoments) {
  const auto bytes = [](DType weights, ModelStage model_stage) {
    return state_schema(small_model(weights), model_stage).bytes_per_element().count();
  };
  EXPECT_EQ(bytes(DType::kBFloat16, kActorTraining), 2 + 4 + 4 + 4);
  EXPECT_EQ(bytes(DType::kFloat32, kActorTraining), 4 + 4 + 4);
  EXPECT_EQ(bytes(DType::kFloat64, kActorTraining), 8 + 8 + 8);
  EXPECT_EQ(bytes(DType::kBFloat16, kActorGeneration), 2);
}

TEST(StateBytes, OfOneDeviceIsTheWholeModel) {
  const ModelUse model = small_model(DType::kFloat32);
  const StateSchema schema = state_schema(model, kActorTraining);
  EXPECT_EQ(state_bytes(schema, {1, 1}, 0).count(), 12 * parameter_count(model.spec));
  EXPECT_LT(state_bytes(schema, {2, 1}, 0), state_bytes(schema, {1, 1}, 0));
  // Nothing is replicated between the pipeline stages of an untied model.
  EXPECT_EQ(state_bytes(schema, {1, 2}, 0) + state_bytes(schema, {1, 2}, 1),
            state_bytes(schema, {1, 1}, 0));
}

TEST(StateBytes, OptimizerStateIsCountedOnceUnderZero) {
  const StateSchema schema = state_schema(small_model(DType::kBFloat16), kActorTraining);
  const auto of_unit = [&](Layout layout) {
    Bytes sum;
    for (int i = 0; i < layout.devices(); ++i) sum += state_bytes(schema, layout, i);
    return sum.count();
  };
  const int64_t elements = parameter_count(small_model(DType::kBFloat16).spec);
  EXPECT_EQ(of_unit({}), elements * (2 + 12));
  EXPECT_EQ(of_unit({.zero = 3}), elements * (3 * 2 + 12));
}

TEST(Emu, SharesShardsOnlyAtTheSamePlaceOfTheSameLayout) {
  const Emu training{kActorTraining, {2, 1}, {{0, 0}, {0, 1}}};
  const Emu same{kActorGeneration, {2, 1}, {{0, 0}, {0, 2}}};
  const Emu moved{kActorGeneration, {2, 1}, {{0, 2}, {0, 0}}};
  const Emu other{kActorGeneration, {1, 2}, {{0, 0}, {0, 1}}};
  EXPECT_TRUE(same_shards(training, same, {0, 0}));
  EXPECT_FALSE(same_shards(training, same, {0, 1}));
  EXPECT_FALSE(same_shards(training, moved, {0, 0}));
  EXPECT_FALSE(same_shards(training, other, {0, 0}));
}

TEST(Emu, SurvivesJson) {
  const Emu emu{kActorTraining, {2, 1}, {{0, 0}, {1, 1}}};
  EXPECT_EQ(Json(emu).get<Emu>(), emu);
  EXPECT_EQ(Json(emu)["devices"], (Json{"0:0", "1:1"}));
  const Emu sharded{kActorTraining, {2, 1, 2, 2}, {{0, 0}, {0, 1}, {0, 2}, {0, 3}}};
  EXPECT_EQ(Json(sharded).get<Emu>(), sharded);
  EXPECT_EQ(to_string(emu), "actor/training tp2·pp1 [0:0 1:1]");
}

TEST(EmuCollection, VerifiesSizesStagesAndDevices) {
  const EmuCollection good = units_of({kActorTraining, {1, 1}, {{{0, 0}}, {{0, 1}}}});
  EXPECT_THAT(good, SizeIs(2));
  EXPECT_NO_THROW(verify(good));
  const auto message = [](const EmuCollection& units) -> std::string {
    try {
      verify(units);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message(units_of({kActorTraining, {2, 1}, {{{0, 0}}}})),
              HasSubstr("1 devices, its layout needs 2"));
  EXPECT_THAT(message(units_of({kActorTraining, {1, 1}, {{{0, 0}}, {{0, 0}}}})),
              HasSubstr("device 0:0 appears twice"));
  EXPECT_THAT(message({good[0], {kActorGeneration, {1, 1}, {{0, 2}}}}),
              HasSubstr("another model-stage"));
}

}  // namespace
}  // namespace nereus
