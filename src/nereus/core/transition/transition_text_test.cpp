#include <gmock/gmock.h>

#include "nereus/core/transition/local_dag.h"
#include "nereus/core/transition/transition_dag.h"

namespace nereus {
namespace {

using ::testing::HasSubstr;

TransitionDag example() {
  const StagePlan from{kActorTraining, {1, 1}, {{{0, 0}}}};
  const StagePlan to{kActorTraining, {2, 1}, {{{0, 0}, {0, 1}}}};
  TransitionDag dag{{{from}}, {{to}}, {}, {}, {}, {}, Seconds(0.5), Seconds(0.1)};
  LocalDag local = compile_local(from, to, Passage::kPrimitives, dag.units);
  dag.primitives = std::move(local.primitives);
  for (const auto& [need, id] : local.needs) dag.edges.push_back({need, id});
  dag.peak_bytes[{0, 1}] = Bytes(2048);
  dag.primitives[0].bytes_moved = Bytes(1024);
  return dag;
}

TEST(TransitionText, SurvivesJsonWithTheAgreedNames) {
  const Json j = example();
  EXPECT_EQ(Json(j.get<TransitionDag>()), j);
  verify(j.get<TransitionDag>());
  EXPECT_EQ(j["primitives"][0]["kind"], "extend");
  EXPECT_EQ(j["primitives"][0]["devices"], (Json{"0:0", "0:1"}));
  EXPECT_EQ(j["primitives"][0]["bytes_moved"], 1024);
  EXPECT_TRUE(j["primitives"][0]["measured_s"].is_null());
  EXPECT_EQ(j["edges"][0], (Json{{"from", 0}, {"to", 1}, {"kind", "state"}}));
  EXPECT_EQ(j["peak_bytes"]["0:1"], 2048);
  EXPECT_EQ(j["makespan_s"], 0.5);
  EXPECT_EQ(j["connecting_s"], 0.1);
}

TEST(TransitionText, RefusesUnknownWords) {
  Json j = example();
  j["primitives"][0]["kind"] = "explode";
  EXPECT_THROW(j.get<TransitionDag>(), Error);
  j = example();
  j["edges"][0]["kind"] = "wish";
  EXPECT_THROW(j.get<TransitionDag>(), Error);
}

TEST(TransitionText, DrawsEveryPrimitiveAndEdge) {
  const std::string dot = to_dot(example());
  EXPECT_THAT(dot, HasSubstr("p1 [label=\"1 merge\\nactor/training\\ntp1·pp1 [0:0] tp1·pp1 [0:1] "
                             "→ tp2·pp1 [0:0 0:1]\"]"));
  EXPECT_THAT(dot, HasSubstr("p0 -> p1;"));
}

TEST(TransitionText, PrintsATable) {
  const std::string table = to_table(example());
  EXPECT_THAT(table, HasSubstr("id  kind    model-stage     moved"));
  EXPECT_THAT(table, HasSubstr("0   extend  actor/training  1.00 KiB"));
  EXPECT_THAT(table, HasSubstr("makespan 500"));
}

}  // namespace
}  // namespace nereus
