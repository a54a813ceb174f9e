// How full a transition may make the devices.
#include <gtest/gtest.h>

#include "nereus/core/cost/memory.h"
#include "nereus/core/cost/test_job.h"
#include "nereus/core/transition/compile.h"

namespace nereus {
namespace {

// Actor training turns from tensor to pipeline parallel on its two GPUs.
struct TensorToPipeline {
  JobSpec job = large_job();
  Cluster cluster = named_cluster("h200x8", 1);
  Plan from{{stage_on_host(kActorTraining, {2, 1}, 1, 1)}};
  Plan to{{stage_on_host(kActorTraining, {1, 2}, 1, 1)}};

  Bytes state(Layout layout) const {
    const StateSchema schema = state_schema(job.models.at(Role::kActor), kActorTraining);
    return std::max(state_bytes(schema, layout, 0), state_bytes(schema, layout, 1));
  }
  // What the fuller device holds if it has both sides at once.
  Bytes at_once() const { return state({2, 1}) + state({1, 2}); }
  Expected<TransitionDag> compile(Bytes memory, const TransitionOptions& options = {}) {
    cluster.device.memory = memory;
    return compile_transition(from, to, job, cluster, {}, options);
  }
};

// The memory of a GPU of which so much is usable.
Bytes with_usable(const DeviceSpec& device, Bytes usable) {
  const RuntimeMemory runtime = runtime_memory(device);
  return usable * (1 + runtime.fragmentation) + runtime.fixed + Bytes(1);
}

TEST(Capacity, LeavesWhatTheAllocatorHoldsBesides) {
  TensorToPipeline c;
  const auto roomy = c.compile(with_usable(c.cluster.device, c.at_once()));
  ASSERT_TRUE(roomy) << roomy.error();
  EXPECT_FALSE(roomy->primitives.front().chunked);
  // Full to the last byte it would fit at once.
  const auto tight = c.compile(c.at_once());
  ASSERT_TRUE(tight) << tight.error();
  EXPECT_TRUE(tight->primitives.front().chunked);
  for (const auto& [device, bytes] : tight->peak_bytes) {
    EXPECT_LE(bytes, usable_memory(c.cluster.device, 0)) << to_string(device);
  }
}

TEST(Capacity, VirtualDevicesCountExactly) {
  TensorToPipeline c;
  c.cluster.device.kind = "cpu";
  const auto dag = c.compile(c.at_once());
  ASSERT_TRUE(dag) << dag.error();
  EXPECT_FALSE(dag->primitives.front().chunked);
}

TEST(Capacity, FillsADeviceOnlyIfNothingElseIsAdmissible) {
  TensorToPipeline c;
  const auto tight = c.compile(c.at_once());
  ASSERT_TRUE(tight) << tight.error();
  // So much it takes at least, layer by layer.
  Bytes least;
  for (const auto& [device, bytes] : tight->peak_bytes) least = std::max(least, bytes);
  const auto urgent = c.compile(least, {.host_staging = false});
  ASSERT_TRUE(urgent) << urgent.error();
  EXPECT_EQ(*urgent, *tight);
  // Host memory is slower but has room.
  const auto staged = c.compile(least);
  ASSERT_TRUE(staged) << staged.error();
  EXPECT_GT(staged->makespan, tight->makespan);
  EXPECT_FALSE(c.compile(least - Bytes(1), {.host_staging = false}));
  EXPECT_FALSE(c.compile(least, {.host_staging = false, .reserved = {{{0, 0}, Bytes()}}}));
}

}  // namespace
}  // namespace nereus
