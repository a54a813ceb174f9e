#include <gmock/gmock.h>

#include "nereus/core/transition/local_dag.h"
#include "nereus/core/transition/transition_dag.h"

namespace nereus {
namespace {

using ::testing::HasSubstr;

StagePlan on(std::vector<int> devices) {
  StagePlan stage{kActorTraining, {1, 1}, {}};
  for (const int device : devices) stage.units.push_back({{0, device}});
  return stage;
}

TransitionDag dag_between(const StagePlan& from, const StagePlan& to) {
  TransitionDag dag{{{from}}, {{to}}, {}, {}, {}, {}, {}, {}};
  LocalDag local = compile_local(from, to, Passage::kPrimitives, dag.units);
  dag.primitives = std::move(local.primitives);
  for (const auto& [need, id] : local.needs) dag.edges.push_back({need, id});
  return dag;
}

std::string problem(const TransitionDag& dag) {
  try {
    verify(dag);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    return error.what();
  }
  return "none";
}

TEST(VerifyDag, AcceptsWhatTheCompilerMakes) {
  EXPECT_EQ(problem(dag_between(on({0}), on({1, 2}))), "none");
}

TEST(VerifyDag, FindsACycle) {
  TransitionDag dag = dag_between(on({0}), on({1}));
  dag.edges.push_back({1, 0, EdgeKind::kResource});
  EXPECT_THAT(problem(dag), HasSubstr("cyclic"));
}

TEST(VerifyDag, FindsAMissingEdge) {
  TransitionDag dag = dag_between(on({0}), on({1}));
  dag.edges.clear();
  EXPECT_THAT(problem(dag), HasSubstr("does not wait for a reader"));
}

TEST(VerifyDag, FindsADroppedLastCopy) {
  TransitionDag dag = dag_between(on({0, 1}), on({0}));
  dag.primitives.push_back(dag.primitives[0]);
  dag.primitives[1].id = 1;
  dag.primitives[1].sources = dag.primitives[1].frees = {0};
  EXPECT_THAT(problem(dag), HasSubstr("drops the last complete copy"));
}

TEST(VerifyDag, FindsAUnitUsedAfterItsEnd) {
  TransitionDag dag = dag_between(on({0, 1}), on({0}));
  dag.primitives.push_back(dag.primitives[0]);
  dag.primitives[1].id = 1;
  EXPECT_THAT(problem(dag), HasSubstr("uses a unit that is not there"));
}

TEST(VerifyDag, FindsAnotherEnd) {
  TransitionDag dag = dag_between(on({0}), on({0, 1}));
  dag.primitives.clear();
  EXPECT_THAT(problem(dag),
              HasSubstr("it ends without actor/training tp1·pp1 [0:1], unlike the target plan"));
}

TEST(VerifyDag, FindsACopyThatGoesInAnotherOrder) {
  // 0:0 → 0:1 → 0:2 with the destroys in a row: without the edge from the second copy to the end of
  // the first, another order drops both.
  TransitionDag dag = dag_between(on({0, 1}), on({2}));
  ASSERT_EQ(problem(dag), "none");
  std::erase_if(dag.edges, [](const Edge& e) { return e.to == 2; });
  EXPECT_NE(problem(dag), "none");
}

TEST(VerifyDag, FindsADeviceWithTwoOwners) {
  TransitionDag dag = dag_between(on({0}), on({0, 1}));
  dag.to.stages[0].units.push_back({{0, 0}});
  dag.units.push_back(dag.units[0]);
  dag.units.back().layout.pp = 2;
  dag.units.back().devices = {{0, 1}, {0, 2}};
  Primitive again = dag.primitives[0];
  again.id = 1;
  again.targets = {2};
  dag.primitives.push_back(again);
  EXPECT_THAT(problem(dag), HasSubstr("takes a device that another unit owns"));
}

TEST(VerifyDag, FindsAWrongShape) {
  TransitionDag dag = dag_between(on({0}), on({1}));
  dag.primitives[0].kind = PrimitiveKind::kMerge;
  EXPECT_THAT(problem(dag), HasSubstr("must free its sources"));
}

}  // namespace
}  // namespace nereus
