#include "nereus/app/compare/foreign_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nereus/core/base/error.h"

namespace nereus {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(ForeignText, WordsAreAShells) {
  EXPECT_THAT(shell_words("a 'b c' \"d  e\" f\\ g # not this\nh \\\n  i#j"),
              ElementsAre("a", "b c", "d  e", "f g", "h", "i#j"));
  EXPECT_THAT(shell_words(" \n "), IsEmpty());
}

TEST(ForeignText, ReadsALaunchScript) {
  EXPECT_THAT(read_foreign_keys(R"(#!/bin/bash
set -x
python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=gae \
    +actor_rollout_ref.rollout.n=5 ++trainer.nnodes=2 \
    data.train_files="['a b.parquet']" trainer.nnodes=3 $@
)"),
              UnorderedElementsAre(
                  Pair("algorithm.adv_estimator", "gae"), Pair("actor_rollout_ref.rollout.n", "5"),
                  Pair("trainer.nnodes", "3"), Pair("data.train_files", "['a b.parquet']")));
}

TEST(ForeignText, ReadsFlags) {
  EXPECT_THAT(
      read_foreign_keys("python3 -m openrlhf.cli.train_ppo_ray --vllm.num_engines 4 "
                        "--train.colocate_all --ds.zero_stage=3 --ds.adam_offload"),
      UnorderedElementsAre(Pair("--vllm.num_engines", "4"), Pair("--train.colocate_all", "true"),
                           Pair("--ds.zero_stage", "3"), Pair("--ds.adam_offload", "true")));
}

TEST(ForeignText, ReadsYaml) {
  EXPECT_THAT(read_foreign_keys("policy:\n  megatron_cfg: {enabled: true, fp8_cfg: null}\n"
                                "cluster: {num_nodes: 2}\n"),
              UnorderedElementsAre(Pair("policy.megatron_cfg.enabled", "true"),
                                   Pair("policy.megatron_cfg.fp8_cfg", "null"),
                                   Pair("cluster.num_nodes", "2")));
}

TEST(ForeignText, AnyTextIsRead) {
  for (const char* text : {"+", "~+ +~", "++ --", "--", "=", "a=", "=b", "\\", "'", "--a --b", "{",
                           "*x", "a: [", "${", "\xff=\xfe"}) {
    EXPECT_NO_THROW(read_foreign_keys(text)) << text;
  }
  for (const char* cycle : {"a: &x {b: *x}", "a: &x [*x]"}) {
    EXPECT_THROW(read_foreign_keys(cycle), Error) << cycle;
  }
}

}  // namespace
}  // namespace nereus
