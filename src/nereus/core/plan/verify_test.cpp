#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <vector>

#include "nereus/core/plan/plan.h"

namespace nereus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelSpec tiny() {
  return {.vocab_size = 512,
          .hidden_size = 64,
          .intermediate_size = 172,
          .num_layers = 5,
          .num_heads = 8,
          .num_kv_heads = 4,
          .head_dim = 8};
}

StagePlan training(Layout layout, std::vector<std::vector<DeviceId>> units) {
  return {.model_stage = kActorTraining, .layout = layout, .units = units};
}

// Two hosts of four devices.
DevicePool pool() { return all_devices(named_cluster("a100x4", 2)); }

std::string refusal(const Plan& plan, const ModelSpec& spec = tiny()) {
  try {
    verify(plan, pool(), std::vector(plan.stages.size(), spec));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    return error.what();
  }
  return "accepted";
}

TEST(LegalTp, DividesHeadsAndSuitsKvHeads) {
  EXPECT_THAT(legal_tp(tiny(), 16), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(legal_tp(tiny(), 3), ElementsAre(1, 2));
  ModelSpec spec = tiny();
  spec.num_heads = 12;
  spec.num_kv_heads = 6;
  EXPECT_THAT(legal_tp(spec, 12), ElementsAre(1, 2, 3, 6, 12));
  spec.vocab_size = 5;
  EXPECT_THAT(legal_tp(spec, 12), ElementsAre(1, 2, 3));
}

TEST(VerifyPlan, AcceptsPipelinesAcrossHosts) {
  EXPECT_EQ(refusal({{training({2, 2}, {{{0, 0}, {0, 1}, {1, 0}, {1, 1}}})}}), "accepted");
}

TEST(VerifyPlan, TensorParallelDegree) {
  EXPECT_EQ(refusal({{training({3, 1}, {{{0, 0}, {0, 1}, {0, 2}}})}}),
            "actor/training: tp 3 does not divide 8 attention heads; legal: 1, 2, 4, 8");
  EXPECT_THAT(refusal({{training({0, 1}, {{}})}}), HasSubstr("tp 0 is less than 1; legal: 1, 2"));
  ModelSpec spec = tiny();
  spec.num_heads = 12;
  spec.num_kv_heads = 6;
  EXPECT_THAT(refusal({{training({4, 1}, {{{0, 0}, {0, 1}, {0, 2}, {0, 3}}})}}, spec),
              HasSubstr("tp 4 neither divides nor is a multiple of 6 KV heads; legal: 1, 2, 3, 6"));
  EXPECT_THAT(refusal({{training({2, 1}, {{{0, 3}, {1, 0}}})}}),
              HasSubstr("tp 2 spans hosts: devices 0:3 and 1:0"));
}

ModelSpec experts() {
  ModelSpec spec = tiny();
  spec.num_experts = 6;
  spec.moe_intermediate_size = 3;
  return spec;
}

TEST(LegalEp, SharesOutExpertsEvenly) {
  EXPECT_THAT(legal_ep(tiny(), 8), ElementsAre(1));
  EXPECT_THAT(legal_ep(experts(), 1), ElementsAre(1));
  EXPECT_THAT(legal_ep(experts(), 2), ElementsAre(1, 2));
  // Four ranks in one expert of width 3 would be too many, and 4 does not divide 6 experts.
  EXPECT_THAT(legal_ep(experts(), 4), ElementsAre(2));
}

TEST(VerifyPlan, ExpertParallelDegree) {
  const StagePlan stage = training({.tp = 2, .ep = 2}, {{{0, 0}, {0, 1}}});
  EXPECT_EQ(refusal({{stage}}, experts()), "accepted");
  EXPECT_EQ(refusal({{stage}}),
            "actor/training: ep 2 does not suit 0 experts of FFN width 0 under tp 2; legal: 1");
  EXPECT_THAT(refusal({{training({.tp = 1, .ep = 2}, {{{0, 0}}})}}, experts()),
              HasSubstr("ep 2 does not suit 6 experts of FFN width 3 under tp 1; legal: 1"));
}

TEST(VerifyPlan, ZeroIsForTraining) {
  StagePlan stage = training({.tp = 2, .zero = 2}, {{{0, 0}, {0, 1}, {1, 0}, {1, 1}}});
  EXPECT_EQ(refusal({{stage}}), "accepted");
  stage.model_stage.stage = Stage::kInference;
  EXPECT_THAT(refusal({{stage}}), HasSubstr("actor/inference: zero 2 is not possible; legal: 1"));
  EXPECT_THAT(refusal({{training({.zero = 0}, {{}})}}), HasSubstr("zero 0"));
}

TEST(VerifyPlan, WavesAreOfGeneration) {
  StagePlan stage = training({1, 1}, {{{0, 0}}});
  stage.waves = 2;
  EXPECT_THAT(refusal({{stage}}), HasSubstr("waves 2 are not possible; legal: 1, and more in"));
  stage.model_stage.stage = Stage::kGeneration;
  EXPECT_EQ(refusal({{stage}}), "accepted");
  stage.waves = 0;
  EXPECT_THAT(refusal({{stage}}), HasSubstr("waves 0 are not possible"));
}

TEST(VerifyPlan, PipelineAndMicroBatch) {
  std::vector<DeviceId> six = {{0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 0}, {1, 1}};
  EXPECT_THAT(refusal({{training({1, 6}, {six})}}), HasSubstr("with 5 layers; legal: 1 to 5"));
  EXPECT_THAT(refusal({{training({1, 0}, {{}})}}), HasSubstr("pp 0"));
  StagePlan stage = training({1, 1}, {{{0, 0}}});
  stage.micro_batch = 0;
  EXPECT_THAT(refusal({{stage}}), HasSubstr("micro_batch 0"));
}

TEST(VerifyPlan, Units) {
  EXPECT_THAT(refusal({{training({1, 1}, {})}}), HasSubstr("no units"));
  EXPECT_THAT(refusal({{training({2, 1}, {{{0, 0}, {0, 1}}, {{0, 2}}})}}),
              HasSubstr("unit 1 has 1 devices; tp2·pp1 needs 2"));
  EXPECT_THAT(refusal({{training({1, 1}, {{{0, 7}}})}}),
              HasSubstr("device 0:7 is not available; available: 0:0, 0:1, 0:2, 0:3, 1:0"));
  EXPECT_THAT(refusal({{training({1, 1}, {{{0, 0}}, {{0, 0}}})}}),
              HasSubstr("device 0:0 is used twice"));
}

TEST(VerifyPlan, StagesSortedAndOnce) {
  const StagePlan actor = training({1, 1}, {{{0, 0}}});
  StagePlan critic = actor;
  critic.model_stage.role = Role::kCritic;
  EXPECT_EQ(refusal({{actor, critic}}), "accepted");
  EXPECT_THAT(refusal({{critic, actor}}), HasSubstr("actor/training: is repeated or out of order"));
  EXPECT_THAT(refusal({{actor, actor}}), HasSubstr("repeated"));
  EXPECT_THAT(refusal({}), HasSubstr("no stages"));
}

TEST(VerifyPlan, EveryLegalTpIsAcceptedAndNoOther) {
  EXPECT_TRUE(rc::check([] {
    ModelSpec spec = tiny();
    spec.num_kv_heads = *rc::gen::inRange(1, 9);
    spec.num_heads = spec.num_kv_heads * *rc::gen::inRange(1, 5);
    const int tp = *rc::gen::inRange(1, 13);
    std::vector<DeviceId> unit;
    for (int index = 0; index < tp; ++index) unit.push_back({0, index});
    const Plan plan{{training({tp, 1}, {unit})}};
    const auto legal = legal_tp(spec, 64);
    bool accepted = true;
    try {
      verify(plan, DevicePool(unit), std::vector{spec});
    } catch (const Error&) {
      accepted = false;
    }
    const bool listed = std::find(legal.begin(), legal.end(), tp) != legal.end();
    RC_ASSERT(accepted == listed);
  }));
}

TEST(VerifyPlan, ProductsDoNotOverflow) {
  const auto message = [](auto change) {
    StagePlan stage = training({1, 1}, {{{0, 0}}});
    change(stage);
    return refusal({{stage}});
  };
  EXPECT_THAT(message([](StagePlan& s) { s.layout.zero = 2147483647; }),
              HasSubstr("zero 2147483647"));
  EXPECT_THAT(message([](StagePlan& s) { s.layout = {.tp = 4, .pp = 5, .zero = 16384}; }),
              HasSubstr("needs 327680 devices"));
  EXPECT_THAT(message([](StagePlan& s) { s.layout.pp = 2147483647; }), HasSubstr("pp 2147483647"));
  EXPECT_THAT(message([](StagePlan& s) { s.layout.tp = -1; }), HasSubstr("tp -1"));
  EXPECT_THAT(message([](StagePlan& s) { s.micro_batch = 2147483647; }), HasSubstr("micro_batch"));
  ModelSpec large = tiny();
  large.num_layers = large.num_heads = large.num_kv_heads = large.intermediate_size = 512;
  const Layout layout = {.tp = 512, .pp = 512, .zero = 16384};
  EXPECT_THAT(refusal({{training(layout, {{{0, 0}}})}}, large),
              HasSubstr("needs 4294967296 devices"));
}

}  // namespace
}  // namespace nereus
