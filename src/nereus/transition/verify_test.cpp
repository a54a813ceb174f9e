#include <gmock/gmock.h>

#include "nereus/transition/transition_dag.h"

namespace nereus {
namespace {

using ::testing::HasSubstr;

constexpr ModelStage kActorTraining{Role::kActor, Stage::kTraining};

StagePlan on(std::vector<int> devices) {
  StagePlan stage{kActorTraining, {1, 1}, {}};
  for (const int device : devices) stage.units.push_back({{0, device}});
  return stage;
}

TransitionDag dag_between(const StagePlan& from, const StagePlan& to) {
  LocalDag local = compile_local(from, to);
  return {{{from}}, {{to}}, local.primitives, local.edges, {}, {}};
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
  EXPECT_THAT(problem(dag), HasSubstr("does not wait for primitive 0"));
}

TEST(VerifyDag, FindsADroppedLastCopy) {
  TransitionDag dag = dag_between(on({0, 1}), on({0}));
  dag.primitives.push_back(dag.primitives[0]);
  dag.primitives[1].id = 1;
  dag.primitives[1].sources[0].devices = {{0, 0}};
  EXPECT_THAT(problem(dag), HasSubstr("drops the last complete copy"));
}

TEST(VerifyDag, FindsAUnitUsedAfterItsEnd) {
  TransitionDag dag = dag_between(on({0, 1}), on({0}));
  dag.primitives.push_back(dag.primitives[0]);
  dag.primitives[1].id = 1;
  EXPECT_THAT(problem(dag), HasSubstr("which is not there"));
}

TEST(VerifyDag, FindsAnotherEnd) {
  TransitionDag dag = dag_between(on({0}), on({0, 1}));
  dag.primitives.clear();
  EXPECT_THAT(problem(dag), HasSubstr("does not end in the units of the target plan"));
}

TEST(VerifyDag, FindsAWrongShape) {
  TransitionDag dag = dag_between(on({0}), on({1}));
  dag.primitives[0].kind = PrimitiveKind::kMerge;
  EXPECT_THAT(problem(dag), HasSubstr("must make one unit of several"));
}

}  // namespace
}  // namespace nereus
