#include "nereus/core/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace nereus {
namespace {

using ::testing::HasSubstr;

// Generation tp1·pp1·dp4 and training tp2·pp1·dp2 on devices 0:0 to 0:3.
Plan four_devices() {
  return {{{.model_stage = kActorGeneration, .units = {{{0, 0}}, {{0, 1}}, {{0, 2}}, {{0, 3}}}},
           {.model_stage = kActorTraining,
            .layout = {.tp = 2, .pp = 1},
            .units = {{{0, 0}, {0, 1}}, {{0, 2}, {0, 3}}},
            .micro_batch = 8,
            .recompute = true}}};
}

TEST(Plan, RanksCountTpFastest) {
  const Layout layout{.tp = 2, .pp = 3};
  EXPECT_EQ(rank_at(layout, 0), (Rank{0, 0}));
  EXPECT_EQ(rank_at(layout, 1), (Rank{1, 0}));
  EXPECT_EQ(rank_at(layout, 4), (Rank{0, 2}));
  const Layout zero{.tp = 2, .pp = 3, .zero = 2};
  EXPECT_EQ(zero.devices(), 12);
  EXPECT_EQ(rank_at(zero, 5), (Rank{1, 2, 0}));
  EXPECT_EQ(rank_at(zero, 9), (Rank{1, 1, 1}));
}

TEST(Plan, EveryZeroRankIsADataParallelRank) {
  const StagePlan stage{.model_stage = kActorTraining,
                        .layout = {.tp = 2, .ep = 2, .zero = 2},
                        .units = {{{0, 0}, {0, 1}, {0, 2}, {0, 3}}}};
  EXPECT_EQ(stage.dp(), 2);
  EXPECT_EQ(to_string(stage.layout), "tp2·pp1·ep2·zero2");
  EXPECT_EQ(Json(stage)["dp"], 2);
  EXPECT_EQ(Json(stage).get<StagePlan>(), stage);
}

TEST(Plan, FindAndDevices) {
  const Plan plan = four_devices();
  EXPECT_EQ(find(plan, kCriticTraining), nullptr);
  EXPECT_EQ(at(plan, kActorTraining).layout.tp, 2);
  EXPECT_EQ(devices_of(plan).size(), 4);
  try {
    at(plan, kCriticTraining);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_THAT(error.what(), HasSubstr("critic/training"));
  }
}

TEST(Plan, TextForPeople) {
  EXPECT_EQ(to_string(four_devices()),
            "actor/generation tp1·pp1·dp4 mb1 [0:0][0:1][0:2][0:3]\n"
            "actor/training tp2·pp1·dp2 mb8 recompute [0:0 0:1][0:2 0:3]\n");
}

TEST(Plan, JsonIsThePublishedFormat) {
  EXPECT_EQ(Json(at(four_devices(), kActorTraining)),
            Json::parse(R"({"role": "actor", "stage": "training", "tp": 2, "pp": 1,
              "ep": 1, "zero": 1, "dp": 2, "units": [["0:0", "0:1"], ["0:2", "0:3"]], "micro_batch": 8, "recompute": true,
              "offload": false, "waves": 1})"));
  const Json j = four_devices();
  ASSERT_TRUE(j.is_object());
  EXPECT_EQ(j.at("stages").size(), 2u);
  EXPECT_EQ(Json::parse(j.dump()).get<Plan>(), four_devices());
}

TEST(Plan, Waves) {
  Plan plan = four_devices();
  plan.stages.front().waves = 4;
  EXPECT_THAT(to_string(plan), HasSubstr("actor/generation tp1·pp1·dp4 mb1 waves4 [0:0]"));
  EXPECT_EQ(Json(plan).get<Plan>(), plan);
}

TEST(Plan, JsonMayOmitDefaultsAndOrder) {
  const Plan plan = Json::parse(R"({"stages": [
    {"role": "critic", "stage": "training", "tp": 1, "pp": 1, "units": [["0:1"]]},
    {"role": "actor", "stage": "training", "tp": 1, "pp": 1, "units": [["0:0"]]}]})");
  EXPECT_EQ(plan.stages[0].model_stage, kActorTraining);
  EXPECT_EQ(plan.stages[1].micro_batch, 1);
}

TEST(Plan, JsonErrors) {
  Json j = at(four_devices(), kActorTraining);
  j["dp"] = 3;
  try {
    j.get<StagePlan>();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("actor/training: dp 3 but 2 units of 1"));
  }
  j.erase("dp");
  j["units"] = {{"0:0", "zero"}};
  EXPECT_THROW(j.get<StagePlan>(), Error);
  EXPECT_THROW(Json::object().get<Plan>(), Error);
}

TEST(Plan, JsonIsTakenAsItIsOrRefused) {
  const auto refused = [](const char* key, const Json& value) {
    Json j = four_devices();
    j["stages"][1][key] = value;
    try {
      as<Plan>(j);
      ADD_FAILURE() << key << " " << value;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(key));
    }
  };
  for (const Json& value : {Json(1.5), Json(2.0), Json("2"), Json(true), Json(1e30),
                            Json(int64_t{1} << 31), Json(Json::array())}) {
    for (const char* key : {"tp", "pp", "ep", "zero", "micro_batch", "waves", "dp"}) {
      if (std::string(key) == "dp" && value == Json(int64_t{1} << 31)) continue;
      refused(key, value);
    }
  }
  refused("recompute", 1);
  refused("offload", "yes");
  refused("micro_batches", 2);
  refused("units", Json::parse(R"([["0:99999999999"]])"));
  refused("units", Json::parse(R"([[3]])"));
  refused("units", 3);
  // A product of 64 bits is no number of devices either.
  Json huge = four_devices();
  huge["stages"][1]["zero"] = 2147483647;
  EXPECT_THROW(as<Plan>(huge), Error);
  huge["stages"][1]["units"] = {{"0:0"}, {"0:1"}};
  huge["stages"][1]["dp"] = -2;  // what it is in 32 bits
  EXPECT_THROW(as<Plan>(huge), Error);
  EXPECT_THROW(as<Plan>(Json::parse(R"({"stages": [], "stage": []})")), Error);
  EXPECT_THROW(as<Plan>(Json::parse("[]")), Error);
}

}  // namespace
}  // namespace nereus
