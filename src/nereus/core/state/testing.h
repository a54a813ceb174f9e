// Random models, layouts and units for the property tests of this room and of those above it.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <vector>

#include "nereus/core/state/emu.h"

namespace nereus::testing {

template <class T>
T pick(std::initializer_list<T> values) {
  return *rc::gen::elementOf(std::vector<T>(values));
}

inline int pick_between(int low, int high) { return *rc::gen::inRange(low, high + 1); }

// A tiny model of any supported type: few KV heads (so tp may exceed them), vocabulary and FFN that
// tp need not divide, layers that pp need not divide. With `experts` it may be a mixture of
// experts, which can be planned and moved but not run.
inline ModelUse random_model(bool experts = false) {
  ModelSpec spec;
  spec.model_type = pick<std::string>({"llama", "mistral", "qwen2", "qwen3"});
  if (experts && pick({true, false})) {
    spec.model_type = "qwen3_moe";
    spec.num_experts = pick({2, 4, 6});
    spec.experts_per_token = 2;
    spec.moe_intermediate_size = pick_between(8, 13);
  }
  spec.head_dim = 2;
  spec.num_kv_heads = pick({1, 2, 4});
  spec.num_heads = spec.num_kv_heads * pick({1, 2, 3, 4});
  spec.hidden_size = pick_between(3, 9);
  spec.intermediate_size = pick_between(8, 13);
  spec.vocab_size = pick_between(8, 21);
  spec.num_layers = pick_between(1, 7);
  spec.qkv_bias = spec.model_type == "qwen2";
  spec.qk_norm = spec.model_type == "qwen3" || spec.model_type == "qwen3_moe";
  spec.head = pick({Head::kLanguageModel, Head::kScalar});
  spec.tie_word_embeddings = spec.head == Head::kLanguageModel && pick({true, false});
  return {spec, pick({DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16})};
}

// A layout that the model admits on at most `limit` devices, with expert parallelism if it has
// experts and up to `max_zero` ranks that share the optimizer state.
inline Layout random_layout(const ModelSpec& spec, int limit, int max_zero = 1) {
  Layout layout;
  layout.tp = *rc::gen::elementOf(legal_tp(spec, std::min(limit, 8)));
  layout.pp = pick_between(1, std::min({limit / layout.tp, spec.num_layers, 4}));
  layout.ep = *rc::gen::elementOf(legal_ep(spec, layout.tp));
  layout.zero = pick_between(1, std::min(limit / layout.devices(), max_zero));
  return layout;
}

// `count` devices, four to a host.
inline std::vector<DeviceId> devices_on_hosts_of_four(int count) {
  std::vector<DeviceId> devices;
  for (int i = 0; i < count; ++i) devices.push_back({i / 4, i % 4});
  return devices;
}

inline std::vector<DeviceId> shuffled(std::vector<DeviceId> devices) {
  for (int i = static_cast<int>(devices.size()) - 1; i > 0; --i) {
    std::swap(devices[i], devices[pick_between(0, i)]);
  }
  return devices;
}

// As many replicas as chance wants of one random layout, on the first of `devices`. `max_zero`
// counts in training only.
inline StagePlan random_stage(const ModelSpec& spec, ModelStage model_stage,
                              const std::vector<DeviceId>& devices, int max_zero = 1) {
  const int available = static_cast<int>(devices.size());
  const bool training = model_stage.stage == Stage::kTraining;
  StagePlan stage{model_stage, random_layout(spec, available, training ? max_zero : 1), {}};
  const int size = stage.layout.devices();
  const int units = pick_between(1, available / size);
  for (int unit = 0; unit < units; ++unit) {
    stage.units.emplace_back(devices.begin() + unit * size, devices.begin() + (unit + 1) * size);
  }
  return stage;
}

}  // namespace nereus::testing
