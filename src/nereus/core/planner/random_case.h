// Random jobs and clusters for the tests of the search.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <random>

#include "nereus/core/cost/test_job.h"
#include "nereus/core/planner/planner.h"

namespace nereus::testing {

// How many random cases; NEREUS_PLANNER_TRIALS=500 for a thorough run.
inline int trials(int fast) {
  const char* number = std::getenv("NEREUS_PLANNER_TRIALS");
  return number == nullptr ? fast : std::max(1, std::atoi(number));
}

struct Case {
  JobSpec job;
  Cluster cluster;
  DevicePool pool;
  PlannerOptions options;
};

// Small enough to enumerate, odd enough to be a test: one to sixteen devices, hosts with holes,
// models of a few layers, slow and fast links.
class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  Case next() {
    Case c;
    c.job = stories_job(pick({16, 64, 256}));
    ModelSpec spec = stories_spec();
    spec.num_layers = pick({1, 3, 4});
    spec.num_heads = pick({2, 4});
    spec.num_kv_heads = 2;
    spec.tie_word_embeddings = pick({0, 1}) == 1;
    spec.vocab_size = pick({64, 512, 2048});
    const DType dtype = pick({0, 1}) == 1 ? DType::kBFloat16 : DType::kFloat32;
    c.job.workflow = ppo_workflow(pick({0, 0, 1}) == 1);
    if (pick({0, 0, 0, 1}) == 1) {
      c.job.workflow = make_workflow(algorithm(AdvantageEstimator::kRemax), {.reference = true});
      c.job.workload.samples_per_prompt = 2;
    }
    if (pick({0, 0, 1}) == 1) c.job.workflow = one_step_off_policy(c.job.workflow);
    for (auto& [role, use] : c.job.models) {
      use = {role == Role::kCritic ? as_critic(spec) : spec, dtype};
    }
    c.job.workload.samples = pick({5, 16, 48});
    c.job.workload.mini_batch = std::min<int64_t>(c.job.workload.samples, pick({5, 8, 16}));
    c.job.workload.response_mean = double(c.job.workload.response_limit) * pick({2, 4}) / 4;

    const int per_host = pick({2, 4, 8});
    const int hosts = pick({1, 1, 2, 16 / per_host});
    c.cluster = cpu_cluster(per_host, Bytes(1 << 30), pick({per_host, per_host, 2}));
    c.cluster.hosts.resize(hosts, c.cluster.hosts.front());
    c.cluster.in_host.bandwidth = pick({1, 10, 100}) * 1e9;
    c.cluster.in_host.latency = Seconds(pick({1, 20}) * 1e-6);
    c.cluster.between_hosts.bandwidth = c.cluster.in_host.bandwidth / pick({1, 20});
    std::vector<DeviceId> devices = all_devices(c.cluster).devices();
    if (pick({0, 0, 1}) == 1) {
      std::shuffle(devices.begin(), devices.end(), random_);
      devices.resize(devices.size() - std::min<size_t>(devices.size() - 1, pick({1, 2, 3})));
    }
    c.pool = DevicePool(devices);
    c.options = {.headroom = 0,
                 .micro_batches = pick({0, 1}) == 1 ? std::vector{4} : std::vector{2, 8},
                 .allow_recompute = pick({0, 1}) == 1,
                 .side_by_side = pick({0, 1}) == 1,
                 .keep = pick({0, 3}),
                 .tolerance = 0.2};
    c.options.most_zero = pick({1, 1, 2, 4});
    c.options.allow_offload = pick({0, 0, 1}) == 1;
    c.options.every_begin = pick({0, 16});
    c.options.places = pick({1, 4, 32});
    for (HostSpec& host : c.cluster.hosts) host.memory = Bytes(pick({0, 1, 4, 64}) * 100'000);
    return c;
  }

  double fraction() { return std::uniform_real_distribution<double>(0, 1)(random_); }

 private:
  int pick(std::initializer_list<int> from) {
    return from.begin()[std::uniform_int_distribution<size_t>(0, from.size() - 1)(random_)];
  }
  std::mt19937_64 random_;
};

}  // namespace nereus::testing
