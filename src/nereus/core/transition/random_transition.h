// Random jobs, clusters and pairs of plans from a seed, of any size: for property tests.
#pragma once

#include <algorithm>
#include <random>

#include "nereus/core/state/emu.h"
#include "nereus/core/workflow/job_spec.h"

namespace nereus::testing {

struct TransitionCase {
  JobSpec job;
  Cluster cluster;
  Plan from;
  Plan to;
};

class RandomTransition {
 public:
  explicit RandomTransition(uint64_t seed) : random_(seed) {}

  // At most `devices` devices, eight to a host; memory without limit.
  TransitionCase make(int devices) {
    const int hosts = std::max(1, devices / 8);
    const int per_host = devices / hosts;
    TransitionCase c{job(), cpu_cluster(per_host, Bytes(int64_t{1} << 40), per_host)};
    c.cluster.hosts.resize(static_cast<size_t>(hosts), c.cluster.hosts.front());
    const std::vector<DeviceId> pool = all_devices(c.cluster).devices();
    for (const ModelStage model_stage : model_stages(c.job.workflow)) {
      c.from.stages.push_back(stage(c.job, model_stage, pool));
      c.to.stages.push_back(changed(c.job, c.from.stages.back(), pool));
    }
    return c;
  }

  int between(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  bool chance(double probability) { return std::bernoulli_distribution(probability)(random_); }
  template <class T>
  const T& of(const std::vector<T>& choices) {
    return choices.at(static_cast<size_t>(between(0, static_cast<int>(choices.size()) - 1)));
  }

 private:
  JobSpec job() {
    ModelSpec spec;
    spec.model_type = of<std::string>({"llama", "qwen2", "qwen3", "qwen3_moe"});
    spec.head_dim = 2;
    spec.num_kv_heads = of<int>({1, 2, 4});
    spec.num_heads = spec.num_kv_heads * between(1, 4);
    spec.hidden_size = between(3, 9);
    spec.intermediate_size = between(8, 13);
    spec.vocab_size = between(8, 21);
    spec.num_layers = between(1, 7);
    spec.qkv_bias = spec.model_type == "qwen2";
    spec.tie_word_embeddings = chance(0.5);
    if (spec.model_type == "qwen3_moe") {
      spec.num_experts = of<int>({2, 4, 6});
      spec.experts_per_token = 2;
      spec.moe_intermediate_size = between(8, 13);
    }
    const ModelUse actor{spec, of<DType>({DType::kFloat32, DType::kBFloat16})};
    const ModelUse critic{as_critic(spec), actor.weights};
    return {ppo_workflow(true),
            {{Role::kActor, actor}, {Role::kCritic, critic}, {Role::kReference, actor}},
            {}};
  }

  Layout layout(const ModelSpec& spec, ModelStage model_stage, int limit) {
    Layout layout;
    layout.tp = of(legal_tp(spec, std::min(limit, 8)));
    layout.pp = between(1, std::min({limit / layout.tp, spec.num_layers, 4}));
    layout.ep = of(legal_ep(spec, layout.tp));
    const bool training = model_stage.stage == Stage::kTraining;
    layout.zero = training ? between(1, std::min(limit / layout.devices(), 2)) : 1;
    return layout;
  }

  // Neighbouring devices most of the time, as planners place them; any order else.
  StagePlan stage(const JobSpec& job, ModelStage model_stage, std::vector<DeviceId> pool) {
    if (chance(0.3)) std::ranges::shuffle(pool, random_);
    const ModelSpec& spec = job.model(model_stage.role);
    const int available = static_cast<int>(pool.size());
    StagePlan stage{model_stage, layout(spec, model_stage, available), {}};
    const int most = available / stage.layout.devices();
    const int units = chance(0.5) ? most : between(1, most);
    const int first = between(0, most - units);
    for (int unit = first; unit < first + units; ++unit) {
      const auto begin = pool.begin() + unit * stage.layout.devices();
      stage.units.emplace_back(begin, begin + stage.layout.devices());
    }
    return stage;
  }

  // Another plan for the model-stage: the same, more or fewer replicas, or anything.
  StagePlan changed(const JobSpec& job, const StagePlan& from, const std::vector<DeviceId>& pool) {
    if (chance(0.1)) return from;
    StagePlan to = stage(job, from.model_stage, pool);
    if (!chance(0.4)) return to;
    to = from;
    std::vector<DeviceId> free = pool;
    for (const auto& unit : from.units) {
      for (const DeviceId device : unit) std::erase(free, device);
    }
    while (to.units.size() > 1 && chance(0.4)) {
      to.units.erase(to.units.begin() + between(0, static_cast<int>(to.units.size()) - 1));
    }
    const auto size = static_cast<size_t>(from.layout.devices());
    while (free.size() >= size && chance(0.6)) {
      to.units.emplace_back(free.end() - static_cast<std::ptrdiff_t>(size), free.end());
      free.resize(free.size() - size);
    }
    return to;
  }

  std::mt19937_64 random_;
};

}  // namespace nereus::testing
