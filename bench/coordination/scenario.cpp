#include "coordination/scenario.h"

#include <algorithm>
#include <random>
#include <thread>

#include "nereus/core/state/emu.h"

namespace nereus::bench {

namespace {

constexpr int kHostDevices = 8;
constexpr int kSlotDevices = 4;
constexpr int kSlotsEach = 4;
constexpr double kLatestLaunch = 0.020;  // seconds

using Slot = std::vector<DeviceId>;
using Random = std::mt19937_64;

int pick(int count, Random& random) {
  return std::uniform_int_distribution<int>(0, count - 1)(random);
}

std::vector<Slot> random_slots(int devices, Random& random) {
  std::vector<Slot> slots;
  for (int host = 0; host < devices / kHostDevices; ++host) {
    std::vector<DeviceId> shuffled;
    for (int index = 0; index < kHostDevices; ++index) shuffled.push_back({host, index});
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    for (int i = 0; i < kHostDevices; i += kSlotDevices) {
      slots.emplace_back(shuffled.begin() + i, shuffled.begin() + i + kSlotDevices);
    }
  }
  std::shuffle(slots.begin(), slots.end(), random);
  return slots;
}

Plan plan_of(const Overlap& overlap, const std::vector<std::vector<Slot>>& slots) {
  Plan plan;
  for (size_t c = 0; c < overlap.components.size(); ++c) {
    const auto& [model_stage, layout] = overlap.components[c];
    StagePlan stage{.model_stage = model_stage, .layout = layout};
    for (const Slot& slot : slots[c]) {
      for (auto unit = slot.begin(); unit != slot.end(); unit += layout.devices()) {
        stage.units.emplace_back(unit, unit + layout.devices());
      }
    }
    plan.stages.push_back(stage);
  }
  return plan;
}

// Every component gives one slot away; false if all kept theirs.
bool hand_over(std::vector<std::vector<Slot>>& slots, Random& random) {
  const int components = static_cast<int>(slots.size());
  std::vector<std::pair<int, Slot>> gifts;
  for (int giver = 0; giver < components; ++giver) {
    const int slot = pick(kSlotsEach, random);
    const int receiver = pick(components, random);
    if (receiver == giver) continue;
    gifts.emplace_back(receiver, slots[giver][slot]);
    slots[giver].erase(slots[giver].begin() + slot);
  }
  for (const auto& [receiver, slot] : gifts) slots[receiver].push_back(slot);
  return !gifts.empty();
}

}  // namespace

std::vector<Overlap> overlaps() {
  constexpr Layout kServing{.tp = 2, .pp = 1};
  constexpr Layout kTraining{.tp = 2, .pp = 2};
  return {{"SM-CS",
           "same model, cross stage",
           {{kActorGeneration, kServing}, {kActorTraining, kTraining}},
           62,
           1},
          {"CM-SS",
           "cross model, same stage",
           {{{Role::kCritic, Stage::kInference}, kServing},
            {kReferenceInference, kServing},
            {kRewardInference, kServing}},
           56,
           2},
          {"CM-CS",
           "cross model, cross stage",
           {{kActorGeneration, kServing},
            {kCriticTraining, kTraining},
            {kReferenceInference, kServing}},
           34,
           2}};
}

JobSpec job_of(const Overlap& overlap) {
  // Many small layers: what is staged while one moves is small beside the whole.
  const ModelSpec model{.vocab_size = 32,
                        .hidden_size = 32,
                        .intermediate_size = 64,
                        .num_layers = 24,
                        .num_heads = 4,
                        .num_kv_heads = 2,
                        .head_dim = 8};
  JobSpec job;
  for (const Component& component : overlap.components) {
    job.workflow.nodes.push_back({.name = to_string(component.model_stage),
                                  .pass = Pass::kLogProbs,
                                  .runs_on = component.model_stage});
    job.models[component.model_stage.role] = {model, DType::kFloat32};
  }
  return job;
}

Cluster cluster_of(const Overlap& overlap, const JobSpec& job) {
  std::vector<Bytes> shares;
  for (const auto& [model_stage, layout] : overlap.components) {
    const StateSchema schema = state_schema(job.models.at(model_stage.role), model_stage);
    for (int rank = 0; rank < layout.devices(); ++rank) {
      shares.push_back(state_bytes(schema, layout, rank));
    }
  }
  // A training unit (fp32 weights and moments over four devices) takes 1.5 times as much of a
  // device as a serving one (weights over two): one of either fits, two of the smallest do not.
  const Bytes capacity = *std::ranges::min_element(shares) * 1.96;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  Cluster cluster = cpu_cluster(kHostDevices, capacity, cores);
  const size_t devices = overlap.components.size() * kSlotsEach * kSlotDevices;
  cluster.hosts.resize(devices / kHostDevices, cluster.hosts.front());
  return cluster;
}

Trial make_trial(const Overlap& overlap, uint64_t seed) {
  Random random(seed);
  const int components = static_cast<int>(overlap.components.size());
  const auto shuffled = random_slots(components * kSlotsEach * kSlotDevices, random);
  std::vector<std::vector<Slot>> slots(components);
  for (size_t i = 0; i < shuffled.size(); ++i) slots[i % components].push_back(shuffled[i]);

  Trial trial{.from = plan_of(overlap, slots)};
  while (!hand_over(slots, random)) {
  }
  trial.to = plan_of(overlap, slots);
  std::uniform_real_distribution<double> launch(0, kLatestLaunch);
  for (int c = 0; c < components; ++c) {
    trial.launch.emplace_back(launch(random));
    trial.order_seeds.push_back(random());
  }
  return trial;
}

}  // namespace nereus::bench
