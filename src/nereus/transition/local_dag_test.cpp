#include <gmock/gmock.h>

#include <map>

#include "nereus/transition/transition_dag.h"

namespace nereus {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ModelStage kCriticTraining{Role::kCritic, Stage::kTraining};

// Units on devices of host 0, named by their indices.
StagePlan stage(Layout layout, const std::vector<std::vector<int>>& units) {
  StagePlan plan{kCriticTraining, layout, {}};
  for (const auto& unit : units) {
    plan.units.emplace_back();
    for (const int index : unit) plan.units.back().push_back({0, index});
  }
  return plan;
}

// What the DAG does, one line a primitive; it must also pass verify().
std::vector<std::string> steps(const StagePlan& from, const StagePlan& to) {
  LocalDag local = compile_local(from, to);
  verify(TransitionDag{{{from}}, {{to}}, local.primitives, local.edges, {}, {}});
  std::vector<std::string> lines;
  for (const Primitive& p : local.primitives) {
    std::string line = to_string(p.kind);
    for (const Emu& unit : p.kind == PrimitiveKind::kExtend ? p.targets : p.sources) {
      line += " ";
      for (const DeviceId device : unit.devices) line += std::to_string(device.index);
    }
    lines.push_back(line);
  }
  return lines;
}

TEST(LocalDag, IsEmptyIfNothingChanges) {
  EXPECT_THAT(steps(stage({2, 1}, {{0, 1}, {2, 3}}), stage({2, 1}, {{2, 3}, {0, 1}})), IsEmpty());
}

TEST(LocalDag, MergesReplicasIntoLargerUnits) {
  EXPECT_THAT(steps(stage({1, 1}, {{0}, {1}, {2}, {3}}), stage({2, 1}, {{0, 1}, {2, 3}})),
              ElementsAre("merge 0 1", "merge 2 3"));
}

TEST(LocalDag, SplitsUnitsIntoReplicas) {
  EXPECT_THAT(steps(stage({2, 1}, {{0, 1}, {2, 3}}), stage({1, 1}, {{0}, {1}, {2}, {3}})),
              ElementsAre("split 01", "split 23"));
}

TEST(LocalDag, DestroysWhatIsTooMuch) {
  EXPECT_THAT(steps(stage({1, 1}, {{0}, {1}, {2}, {3}}), stage({1, 1}, {{0}, {1}})),
              ElementsAre("destroy 2", "destroy 3"));
}

TEST(LocalDag, ExtendsWhatIsMissingFromEveryReplica) {
  const LocalDag local =
      compile_local(stage({1, 1}, {{0}, {1}}), stage({1, 1}, {{0}, {1}, {2}, {3}}));
  ASSERT_EQ(local.primitives.size(), 2);
  EXPECT_EQ(local.primitives[0].kind, PrimitiveKind::kExtend);
  EXPECT_EQ(local.primitives[0].sources.size(), 2);
  EXPECT_THAT(local.edges, IsEmpty());
}

TEST(LocalDag, ReachesAnotherHostOnce) {
  StagePlan to = stage({1, 1}, {{0}});
  to.units.push_back({{1, 0}});
  to.units.push_back({{1, 1}});
  const LocalDag local = compile_local(stage({1, 1}, {{0}}), to);
  ASSERT_EQ(local.primitives.size(), 2);
  EXPECT_EQ(local.primitives[1].sources, local.primitives[0].targets);
  EXPECT_THAT(local.edges, ElementsAre(Edge{0, 1}));
}

TEST(LocalDag, GoesThroughTheCommonLayout) {
  // tp2·pp1 → tp1·pp2: the largest layout that both can be split into is tp1·pp1.
  EXPECT_THAT(steps(stage({2, 1}, {{0, 1}}), stage({1, 2}, {{0, 1}})),
              ElementsAre("split 01", "merge 0 1"));
  // tp2·pp2 → tp4·pp1: rank order is tp fastest, so the halves are the pipeline stages.
  EXPECT_THAT(steps(stage({2, 2}, {{0, 1, 2, 3}}), stage({4, 1}, {{0, 1, 2, 3}})),
              ElementsAre("split 0123", "merge 01 23"));
  // tp2·pp2 → tp1·pp2: the halves are the tensor ranks.
  EXPECT_THAT(steps(stage({2, 2}, {{0, 1, 2, 3}}), stage({1, 2}, {{0, 2}, {1, 3}})),
              ElementsAre("split 0123"));
}

TEST(LocalDag, FollowsSplitDestroyExtendMerge) {
  EXPECT_THAT(steps(stage({2, 1}, {{0, 1}}), stage({1, 2}, {{0, 2}})),
              ElementsAre("split 01", "destroy 1", "extend 2", "merge 0 2"));
}

TEST(LocalDag, DestroysUnsplitWhatNobodyNeeds) {
  EXPECT_THAT(steps(stage({2, 1}, {{0, 1}, {2, 3}}), stage({1, 1}, {{0}})),
              ElementsAre("split 01", "destroy 1", "destroy 23"));
}

TEST(LocalDag, MovesTheLastCopyBeforeDestroyingIt) {
  const StagePlan from = stage({2, 1}, {{0, 1}});
  const StagePlan to = stage({2, 1}, {{2, 3}});
  EXPECT_THAT(steps(from, to), ElementsAre("extend 23", "destroy 01"));
  EXPECT_THAT(compile_local(from, to).edges, ElementsAre(Edge{0, 1, EdgeKind::kState}));
}

TEST(LocalDag, KeepsAsLastCopyWhatIsNotInTheWay) {
  const StagePlan from = stage({2, 1}, {{0, 1}, {2, 3}});
  const StagePlan to = stage({2, 1}, {{1, 0}});
  EXPECT_THAT(steps(from, to), ElementsAre("destroy 01", "extend 10", "destroy 23"));
  EXPECT_THAT(compile_local(from, to).edges,
              ElementsAre(Edge{0, 1, EdgeKind::kResource}, Edge{1, 2, EdgeKind::kState}));
}

TEST(LocalDag, MergesAPartOnlyAfterItWasRead) {
  const StagePlan from = stage({1, 1}, {{0}, {1}});
  const StagePlan to = stage({2, 1}, {{0, 1}, {2, 3}});
  EXPECT_THAT(steps(from, to), ElementsAre("extend 2", "extend 3", "merge 0 1", "merge 2 3"));
  EXPECT_THAT(compile_local(from, to).edges,
              ElementsAre(Edge{0, 2}, Edge{1, 2}, Edge{0, 3}, Edge{1, 3}));
}

}  // namespace
}  // namespace nereus
