#include "nereus/core/transition/schedule.h"

#include <gmock/gmock.h>
#include <rapidcheck.h>

#include <algorithm>

namespace nereus {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

int pick(int low, int high) { return *rc::gen::inRange(low, high + 1); }

ScheduleProblem with_devices(int devices, int64_t capacity) {
  ScheduleProblem problem;
  problem.used.resize(static_cast<size_t>(devices));
  problem.capacity.assign(static_cast<size_t>(devices), Bytes(capacity));
  problem.lanes = {1, 2};
  return problem;
}

Task on(int device, double seconds, int64_t rise, int64_t net) {
  return {Seconds(seconds), 0, {{device, Bytes(rise), Bytes(rise), Bytes(net)}}, {}, {}};
}

ScheduleProblem random_problem() {
  const int devices = pick(1, 4);
  ScheduleProblem problem = with_devices(devices, pick(10, 40));
  const int tasks = pick(1, 9);
  for (int id = 0; id < tasks; ++id) {
    Task task{Seconds(pick(1, 5)), pick(0, 2), {}, {}, {}};
    for (int device = 0; device < devices; ++device) {
      if (pick(0, 1) == 0) continue;
      const int net = pick(-5, 8);
      const int rise = std::max(net, 0) + pick(0, 3);
      task.uses.push_back({device, Bytes(rise), Bytes(pick(std::max(net, 0), rise)), Bytes(net)});
    }
    if (task.uses.empty()) task.uses.push_back({0, {}, {}, {}});
    if (pick(0, 2) == 0) task.nics.push_back({pick(0, 1), 1});
    for (int need = 0; need < id; ++need) {
      if (pick(0, 4) == 0) task.needs.push_back(need);
    }
    problem.tasks.push_back(std::move(task));
  }
  for (Bytes& used : problem.used) used = Bytes(pick(0, 10));
  return problem;
}

bool overlap(const ScheduleProblem& problem, const Schedule& schedule, int a, int b) {
  const auto end = [&](int task) { return schedule.start[task] + problem.tasks[task].duration; };
  return schedule.start[a] < end(b) && schedule.start[b] < end(a);
}

TEST(Schedule, KeepsDevicesNicsAndOrder) {
  EXPECT_TRUE(rc::check([] {
    const ScheduleProblem problem = random_problem();
    const auto result = schedule(problem);
    const auto* found = std::get_if<Schedule>(&result);
    RC_CLASSIFY(found != nullptr, "fits");
    if (found == nullptr) {
      RC_ASSERT(!std::get<Stuck>(result).tasks.empty());
      RC_ASSERT(std::get<Stuck>(result).needed > std::get<Stuck>(result).free);
      return;
    }
    const auto tasks = static_cast<int>(problem.tasks.size());
    RC_ASSERT(std::ssize(found->order) == tasks);
    Seconds last;
    for (int a = 0; a < tasks; ++a) {
      const Seconds end_a = found->start[a] + problem.tasks[a].duration;
      last = std::max(last, end_a);
      for (const int need : problem.tasks[a].needs) {
        RC_ASSERT(found->start[need] + problem.tasks[need].duration <= found->start[a]);
      }
      for (int b = 0; b < a; ++b) {
        if (!overlap(problem, *found, a, b)) continue;
        for (const DeviceUse& mine : problem.tasks[a].uses) {
          for (const DeviceUse& other : problem.tasks[b].uses)
            RC_ASSERT(mine.device != other.device);
        }
      }
      for (const NicUse& nic : problem.tasks[a].nics) {
        int lanes = 0;
        for (int b = 0; b < tasks; ++b) {
          // At the moment when a starts.
          const bool runs = found->start[b] <= found->start[a] &&
                            found->start[a] < found->start[b] + problem.tasks[b].duration;
          for (const NicUse& other : problem.tasks[b].nics) {
            if (runs && other.host == nic.host) lanes += other.lanes;
          }
        }
        RC_ASSERT(lanes <= problem.lanes[nic.host]);
      }
    }
    RC_ASSERT(found->makespan == last);
    for (const auto& [release, acquisition] : found->waits) {
      RC_ASSERT(found->start[release] + problem.tasks[release].duration <=
                found->start[acquisition]);
    }
    for (size_t device = 0; device < problem.used.size(); ++device) {
      RC_ASSERT(found->peak[device] <= std::max(problem.capacity[device], problem.used[device]));
    }
  }));
}

TEST(Schedule, RunsIndependentTasksAtOnce) {
  ScheduleProblem problem = with_devices(2, 10);
  problem.tasks = {on(0, 2, 0, 0), on(1, 3, 0, 0), on(0, 2, 0, 0)};
  const auto found = std::get<Schedule>(schedule(problem));
  EXPECT_THAT(found.start, ElementsAre(Seconds(0), Seconds(0), Seconds(2)));
  EXPECT_EQ(found.makespan, Seconds(4));
  EXPECT_THAT(found.waits, IsEmpty());
}

TEST(Schedule, WaitsForTheOldestReleaseThatMakesRoom) {
  ScheduleProblem problem = with_devices(1, 10);
  problem.used[0] = Bytes(10);
  problem.tasks = {on(0, 1, 0, -4), on(0, 1, 0, -4), on(0, 1, 4, 4)};
  problem.tasks[2].priority = 1;
  EXPECT_THAT(std::get<Schedule>(schedule(problem)).waits, ElementsAre(Pair(0, 2)));
  problem.tasks[2] = on(0, 1, 6, 6);
  problem.tasks[2].priority = 1;
  EXPECT_THAT(std::get<Schedule>(schedule(problem)).waits, ElementsAre(Pair(0, 2), Pair(1, 2)));
}

TEST(Schedule, GoesLayerByLayerOnlyIfItMust) {
  ScheduleProblem problem = with_devices(1, 10);
  problem.used[0] = Bytes(5);
  problem.tasks = {on(0, 1, 6, 0)};
  problem.tasks[0].uses[0].chunked_rise = Bytes(1);
  EXPECT_TRUE(std::get<Schedule>(schedule(problem)).chunked[0]);
  problem.used[0] = Bytes(4);
  EXPECT_FALSE(std::get<Schedule>(schedule(problem)).chunked[0]);
}

TEST(Schedule, SharesANicByLanes) {
  ScheduleProblem problem = with_devices(2, 10);
  problem.tasks = {on(0, 2, 0, 0), on(1, 2, 0, 0)};
  for (Task& task : problem.tasks) task.nics = {{0, 1}};
  EXPECT_EQ(std::get<Schedule>(schedule(problem)).makespan, Seconds(4));
  for (Task& task : problem.tasks) task.nics = {{1, 1}};
  EXPECT_EQ(std::get<Schedule>(schedule(problem)).makespan, Seconds(2));
}

TEST(Schedule, StartsWhatOthersWaitForFirst) {
  ScheduleProblem problem = with_devices(2, 10);
  problem.tasks = {on(0, 5, 0, 0), on(0, 1, 0, 0), on(1, 5, 0, 0)};
  problem.tasks[2].needs = {1};
  EXPECT_EQ(std::get<Schedule>(schedule(problem)).makespan, Seconds(11));
  EXPECT_EQ(std::get<Schedule>(schedule(longest_tail_first(problem))).makespan, Seconds(6));
}

TEST(Schedule, SaysWhatIsStuckAndWhere) {
  ScheduleProblem problem = with_devices(2, 10);
  problem.used = {Bytes(8), Bytes(9)};
  problem.tasks = {on(0, 1, 4, -8), on(1, 1, 3, -9)};
  const auto stuck = std::get<Stuck>(schedule(problem));
  EXPECT_THAT(stuck.tasks, ElementsAre(0, 1));
  EXPECT_EQ(stuck.device, 0);
  EXPECT_EQ(stuck.needed, Bytes(4));
  EXPECT_EQ(stuck.free, Bytes(2));
}

}  // namespace
}  // namespace nereus
