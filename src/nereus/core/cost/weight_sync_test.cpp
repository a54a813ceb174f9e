#include "nereus/core/cost/weight_sync.h"

#include <gtest/gtest.h>

#include "nereus/core/cost/test_job.h"
#include "nereus/core/state/reshard.h"

namespace nereus {
namespace {

StateSchema weights_of(const JobSpec& job) {
  return state_schema(job.models.at(Role::kActor), kActorGeneration);
}

double sync_seconds(const StagePlan& training, const StagePlan& generation,
                    const Cluster& cluster) {
  const JobSpec job = large_job();
  return sync_work(training, generation, summarize(weights_of(job)), cluster)
      .at(OpClass::kTransfer)
      .sum();
}

// The busiest NIC if every box goes where reshard() sends it.
double busiest_nic(const StagePlan& training, const StagePlan& generation, const Cluster& cluster) {
  const StateSchema schema = weights_of(large_job());
  const EmuCollection sources = units_of(training), targets = units_of(generation);
  std::vector<double> in(cluster.hosts.size()), out(cluster.hosts.size());
  for (const LinkLoad& load : link_loads(reshard(sources, targets, schema), schema)) {
    if (load.from.host == load.to.host) continue;
    out[size_t(load.from.host)] += double(load.bytes.count());
    in[size_t(load.to.host)] += double(load.bytes.count());
  }
  double most = 0;
  for (size_t host = 0; host < in.size(); ++host) {
    most = std::max(most, std::max(in[host], out[host]) / cluster.hosts[host].nic_bandwidth);
  }
  return most;
}

// Units of contiguous devices.
StagePlan on(ModelStage model_stage, Layout layout, const std::vector<DeviceId>& devices) {
  StagePlan stage{.model_stage = model_stage, .layout = layout};
  for (size_t i = 0; i + layout.devices() <= devices.size(); i += layout.devices()) {
    stage.units.emplace_back(devices.begin() + ptrdiff_t(i),
                             devices.begin() + ptrdiff_t(i) + layout.devices());
  }
  return stage;
}

std::vector<DeviceId> devices_of_hosts(int first, int last) {
  std::vector<DeviceId> devices;
  for (int host = first; host <= last; ++host) {
    for (int index = 0; index < 8; ++index) devices.push_back({host, index});
  }
  return devices;
}

TEST(WeightSync, OneSenderServesAllTheOthers) {
  const Cluster cluster = named_cluster("h200x8", 8);
  const StagePlan training = on(kActorTraining, {8, 1}, devices_of_hosts(0, 0));
  const auto seconds = [&](int hosts) {
    return sync_seconds(training, on(kActorGeneration, {1, 1}, devices_of_hosts(1, hosts)),
                        cluster);
  };
  const double one = 8 * 2 * 8.03e9 / cluster.hosts[0].nic_bandwidth;
  EXPECT_NEAR(seconds(1) / one, 1, 0.01);
  EXPECT_NEAR(seconds(3) / one, 3, 0.03);
  EXPECT_NEAR(seconds(7) / one, 7, 0.07);
}

TEST(WeightSync, MoreReplicasSendMoreAtOnce) {
  const Cluster cluster = named_cluster("h200x8", 8);
  const StagePlan generation = on(kActorGeneration, {1, 1}, devices_of_hosts(4, 7));
  const auto seconds = [&](int hosts) {
    return sync_seconds(on(kActorTraining, {8, 1}, devices_of_hosts(0, hosts - 1)), generation,
                        cluster);
  };
  EXPECT_NEAR(seconds(1) / seconds(4), 4, 0.04);
}

// Hosts with five and three devices: of the second unit, the second host has three stages of four.
TEST(WeightSync, CrossesTheNetworkOnlyWithWhatAHostLacks) {
  const Cluster cluster = named_cluster("h200x8", 2);
  const std::vector<DeviceId> pool = {{0, 0}, {0, 1}, {0, 2}, {0, 3},
                                      {0, 4}, {1, 0}, {1, 1}, {1, 2}};
  const StagePlan generation = on(kActorGeneration, {1, 1}, pool);
  // Pipelines that span the hosts, and one host without a unit.
  for (const StagePlan& training :
       {on(kActorTraining, {1, 4}, pool), on(kActorTraining, {1, 8}, pool),
        on(kActorTraining, {2, 2}, {{0, 0}, {0, 1}, {1, 0}, {1, 1}}),
        on(kActorTraining, {2, 1}, {{0, 0}, {0, 1}})}) {
    const double moved = busiest_nic(training, generation, cluster);
    EXPECT_NEAR(sync_seconds(training, generation, cluster) / moved, 1, 0.05)
        << to_string(training);
  }
}

TEST(WeightSync, NothingMovesWhereRanksAreTheSame) {
  const Cluster cluster = named_cluster("h200x8", 2);
  EXPECT_EQ(sync_seconds(on(kActorTraining, {4, 2}, devices_of_hosts(0, 1)),
                         on(kActorGeneration, {4, 2}, devices_of_hosts(0, 1)), cluster),
            0);
}

}  // namespace
}  // namespace nereus
