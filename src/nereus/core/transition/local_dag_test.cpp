#include <gmock/gmock.h>

#include <map>

#include "nereus/core/transition/local_dag.h"
#include "nereus/core/transition/transition_dag.h"

namespace nereus {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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
std::vector<std::string> steps(const StagePlan& from, const StagePlan& to,
                               Passage passage = Passage::kPrimitives) {
  TransitionDag dag{{{from}}, {{to}}, {}, {}, {}, {}, {}, {}};
  LocalDag local = compile_local(from, to, passage, dag.units);
  dag.primitives = local.primitives;
  for (const auto& [need, id] : local.needs) dag.edges.push_back({need, id});
  verify(dag);
  std::vector<std::string> lines;
  for (const Primitive& p : local.primitives) {
    std::string line = to_string(p.kind);
    for (const int unit : p.kind == PrimitiveKind::kExtend ? p.targets : p.sources) {
      line += " ";
      for (const DeviceId device : dag.units[unit].devices) {
        line += is_host_memory(device) ? "host" : std::to_string(device.index);
      }
    }
    lines.push_back(line);
  }
  return lines;
}

using Needs = std::vector<std::pair<int, int>>;
Needs needs(const StagePlan& from, const StagePlan& to) {
  EmuCollection units;
  return compile_local(from, to, Passage::kPrimitives, units).needs;
}

TEST(LocalDag, IsEmptyIfNothingChanges) {
  EXPECT_THAT(steps(stage({2, 1}, {{0, 1}, {2, 3}}), stage({2, 1}, {{2, 3}, {0, 1}})), IsEmpty());
}

TEST(LocalDag, MergesReplicasIntoLargerUnits) {
  EXPECT_THAT(steps(stage({1, 1}, {{0}, {1}, {2}, {3}}), stage({2, 1}, {{0, 1}, {2, 3}})),
              ElementsAre("merge 0 1", "merge 2 3"));
}

TEST(LocalDag, SplitsIntoThePartsThatAreNeeded) {
  // tp2·pp2 [0 1 2 3] → tp2·pp1 on [0 2] and [1 3]: pairs that are no neighbours in rank order.
  EXPECT_THAT(steps(stage({2, 2}, {{0, 1, 2, 3}}), stage({2, 1}, {{0, 2}, {1, 3}})),
              ElementsAre("split 0123"));
  EXPECT_THAT(steps(stage({2, 1}, {{0, 2}, {1, 3}}), stage({2, 2}, {{0, 1, 2, 3}})),
              ElementsAre("merge 02 13"));
  EXPECT_THAT(steps(stage({4, 1}, {{0, 1, 2, 3}}), stage({2, 2}, {{0, 2, 1, 3}})),
              ElementsAre("split 0123", "merge 02 13"));
}

TEST(LocalDag, ReachesAnotherHostOnce) {
  StagePlan to = stage({1, 1}, {{0}});
  for (const int index : {0, 1, 2}) to.units.push_back({{1, index}});
  EmuCollection units;
  const LocalDag local = compile_local(stage({1, 1}, {{0}}), to, Passage::kPrimitives, units);
  int crossing = 0;
  for (const Primitive& p : local.primitives) {
    crossing +=
        units[p.sources.front()].devices[0].host != units[p.targets.front()].devices[0].host;
  }
  EXPECT_EQ(crossing, 1);
}

TEST(LocalDag, SplitsUnitsIntoReplicas) {
  EXPECT_THAT(steps(stage({2, 1}, {{0, 1}, {2, 3}}), stage({1, 1}, {{0}, {1}, {2}, {3}})),
              ElementsAre("split 01", "split 23"));
}

TEST(LocalDag, DestroysWhatIsTooMuch) {
  EXPECT_THAT(steps(stage({1, 1}, {{0}, {1}, {2}, {3}}), stage({1, 1}, {{0}, {1}})),
              ElementsAre("destroy 2", "destroy 3"));
}

TEST(LocalDag, ExtendsInRoundsInWhichEveryCopyServesOne) {
  const StagePlan one = stage({1, 1}, {{0}});
  const StagePlan many = stage({1, 1}, {{0}, {1}, {2}, {3}, {4}});
  EXPECT_THAT(steps(one, many), ElementsAre("extend 1", "extend 2", "extend 3", "extend 4"));
  // 0 → 1; then 0 → 2 and 1 → 3; then 0 → 4.
  EXPECT_THAT(needs(one, many), ElementsAre(std::pair(0, 2)));
}

TEST(LocalDag, CopiesFromTheOwnHost) {
  StagePlan from = stage({1, 1}, {{0}});
  from.units.push_back({{1, 0}});
  StagePlan to = from;
  to.units.push_back({{1, 1}});
  to.units.push_back({{0, 1}});
  EmuCollection units;
  const LocalDag local = compile_local(from, to, Passage::kPrimitives, units);
  ASSERT_EQ(local.primitives.size(), 2);
  for (const Primitive& p : local.primitives) {
    EXPECT_EQ(units[p.sources.front()].devices[0].host, units[p.targets.front()].devices[0].host);
  }
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
  EXPECT_THAT(needs(from, to), ElementsAre(std::pair(0, 1)));
}

TEST(LocalDag, KeepsAsLastCopyWhatIsNotInTheWay) {
  const StagePlan from = stage({2, 1}, {{0, 1}, {2, 3}});
  const StagePlan to = stage({2, 1}, {{1, 0}});
  EXPECT_THAT(steps(from, to), ElementsAre("destroy 01", "extend 10", "destroy 23"));
  EXPECT_THAT(needs(from, to), ElementsAre(std::pair(0, 1), std::pair(1, 2)));
}

TEST(LocalDag, MergesAPartOnlyAfterItWasRead) {
  const StagePlan from = stage({1, 1}, {{0}, {1}});
  const StagePlan to = stage({2, 1}, {{0, 1}, {2, 3}});
  EXPECT_THAT(steps(from, to), ElementsAre("extend 2", "extend 3", "merge 0 1", "merge 2 3"));
  EXPECT_THAT(needs(from, to),
              ElementsAre(std::pair(0, 2), std::pair(1, 2), std::pair(0, 3), std::pair(1, 3)));
}

TEST(LocalDag, SplitsZeroRanksIntoReplicas) {
  Layout zero2{1, 1};
  zero2.zero = 2;
  EXPECT_THAT(steps(stage(zero2, {{0, 1}}), stage({1, 1}, {{0}, {1}})), ElementsAre("split 01"));
  EXPECT_THAT(steps(stage({1, 1}, {{0}, {1}}), stage(zero2, {{0, 1}})), ElementsAre("merge 0 1"));
}

TEST(LocalDag, FusesEverythingIntoOneRoute) {
  const StagePlan from = stage({2, 1}, {{0, 1}, {2, 3}});
  EXPECT_THAT(steps(from, stage({1, 2}, {{0, 2}}), Passage::kRoute), ElementsAre("route 01 23"));
  EXPECT_THAT(steps(from, stage({2, 1}, {{0, 1}}), Passage::kRoute), ElementsAre("destroy 23"));
}

TEST(LocalDag, ParksTheOnlyCopyInHostMemory) {
  EXPECT_THAT(steps(stage({2, 1}, {{0, 1}}), stage({1, 2}, {{1, 2}}), Passage::kHostStaging),
              ElementsAre("extend host", "destroy 01", "route host", "destroy host"));
}

}  // namespace
}  // namespace nereus
