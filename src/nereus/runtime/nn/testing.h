// For tests and the parity program: a unit of worker threads with a model cut over them.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nereus/runtime/comm/nccl_communicator.h"
#include "nereus/runtime/cuda/device.h"
#include "nereus/runtime/nn/decoder.h"

namespace nereus::testing {

// The part of `whole` in a box.
inline at::Tensor cut(at::Tensor whole, const Box& box) {
  for (size_t d = 0; d < box.begin.size(); ++d) {
    whole = whole.narrow(static_cast<int64_t>(d), box.begin[d], box.end[d] - box.begin[d]);
  }
  return whole;
}

// Leaf copies of the shards of one rank in one arena, as the engine has them; with requires_grad.
inline ParameterMap cut_model(const ParameterMap& whole, const ModelSpec& spec, Layout layout,
                              Rank rank, at::Device device) {
  std::vector<std::pair<std::string, at::Tensor>> shards;
  int64_t size = 0;
  for (const TensorSpec& tensor : tensors(spec)) {
    const std::optional<Box> box = shard(tensor, spec.num_layers, layout, rank);
    if (!box) continue;
    shards.emplace_back(tensor.name, cut(whole.at(tensor.name), *box));
    size += volume(*box);
  }
  const at::Tensor arena = at::empty({size}, shards.front().second.options().device(device));
  ParameterMap parameters;
  int64_t offset = 0;
  for (const auto& [name, part] : shards) {
    const at::Tensor place = arena.narrow(0, offset, part.numel()).view(part.sizes());
    place.copy_(part);
    parameters[name] = place.detach().requires_grad_(true);
    offset += part.numel();
  }
  return parameters;
}

// A decoder of any type that layouts cut unevenly; "critic" is a Llama with a scalar head.
inline ModelSpec tiny(const std::string& type) {
  ModelSpec spec{.model_type = type,
                 .vocab_size = 37,  // no tp but 1 divides it
                 .hidden_size = 16,
                 .intermediate_size = 22,
                 .num_layers = 3,  // pp 2 does not divide it
                 .num_heads = 4,
                 .num_kv_heads = 2,  // fewer than tp 4
                 .head_dim = 8,
                 .max_position = 256};
  spec.qkv_bias = type == "qwen2";
  spec.qk_norm = type == "qwen3";
  spec.tie_word_embeddings = type == "qwen2";
  if (type == "llama") {
    spec.rope_scaling = RopeScaling{.factor = 8, .original_max_position = 16};
  }
  if (type == "critic") spec.head = Head::kScalar;
  return spec;
}

inline ParameterMap random_weights(const ModelSpec& spec) {
  at::manual_seed(7);
  ParameterMap weights;
  for (const TensorSpec& tensor : tensors(spec)) {
    const bool norm = tensor.name.find("norm") != std::string::npos;
    weights[tensor.name] = at::randn(tensor.shape, at::kDouble) * 0.4 + (norm ? 1 : 0);
  }
  return weights;
}

struct UnitRank {
  int index;  // in the unit
  Rank rank;
  const DecoderStage& stage;
  Communicator& tp;
  Communicator& pp;
  const ParameterMap& parameters;
};

// Between ranks on these devices.
inline std::vector<std::unique_ptr<Communicator>> connect(const std::vector<at::Device>& devices) {
  const auto size = static_cast<int>(devices.size());
  std::vector<int> gpus;
  for (const at::Device device : devices) gpus.push_back(device.index());
  const bool shared = std::set<int>(gpus.begin(), gpus.end()).size() < gpus.size();
  if (devices.front().is_cpu() || shared) return make_thread_communicators(size);
  return make_nccl_communicators(gpus);
}

// The CPU for all ranks, or the GPUs of this machine in turns.
inline std::function<at::Device(int)> devices_named(const std::string& type) {
  if (type == "cpu") return [](int) { return at::Device(at::kCPU); };
  return [gpus = cuda::device_count()](int index) {
    return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index % gpus));
  };
}

// What the calling thread does on an accelerator goes to a stream of its own from now on.
inline void leave_default_stream(at::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.exchangeStream(guard.getStreamFromGlobalPool(device));
  guard.setDevice(device);
}

// Cuts the model over a thread per rank and runs `work` on each; rethrows the first error.
// `device_of(index)` gives each rank's device.
inline void on_unit(const ParameterMap& whole, const ModelSpec& spec, Layout layout,
                    const std::function<at::Device(int)>& device_of,
                    const std::function<void(const UnitRank&)>& work) {
  std::vector<std::vector<std::unique_ptr<Communicator>>> tp_groups, pp_groups;
  const auto group = [&](int begin, int stride, int count) {
    std::vector<at::Device> devices;
    for (int i = 0; i < count; ++i) devices.push_back(device_of(begin + i * stride));
    return connect(devices);
  };
  for (int i = 0; i < layout.pp; ++i) tp_groups.push_back(group(i * layout.tp, 1, layout.tp));
  for (int i = 0; i < layout.tp; ++i) pp_groups.push_back(group(i, layout.tp, layout.pp));
  std::vector<std::exception_ptr> errors(layout.devices());
  std::vector<std::thread> threads;
  threads.reserve(layout.devices());
  for (int index = 0; index < layout.devices(); ++index) {
    threads.emplace_back([&, index] {
      const Rank rank = rank_at(layout, index);
      Communicator& tp = *tp_groups[rank.pp][rank.tp];
      Communicator& pp = *pp_groups[rank.tp][rank.pp];
      try {
        at::set_num_threads(1);
        leave_default_stream(device_of(index));
        // Ranks that share a GPU must not share autograd's thread for it.
        c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
        const ParameterMap parameters = cut_model(whole, spec, layout, rank, device_of(index));
        const DecoderStage stage(spec, layout, rank, parameters, tp);
        work({index, rank, stage, tp, pp, parameters});
      } catch (const std::exception& error) {
        errors[index] = std::current_exception();
        tp.abort(error.what());
        pp.abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// Adds one rank's gradients into whole tensors (zeros before the first): a logical element's
// gradient is counted once per holder of a partial sum, and once in all where holders hold equal
// sums.
inline void add_gradients(ParameterMap& sums, const ModelSpec& spec, Layout layout,
                          const UnitRank& unit) {
  for (const TensorSpec& tensor : tensors(spec)) {
    const std::optional<Box> box = shard(tensor, spec.num_layers, layout, unit.rank);
    if (!box) continue;
    at::Tensor& sum = sums[tensor.name];
    const at::Tensor grad = unit.parameters.at(tensor.name).grad();
    if (!sum.defined()) sum = at::zeros(tensor.shape, grad.options().device(at::kCPU));
    const bool same_on_all_tp = tensor.tp_dim < 0 && !tensor.partial_gradient;
    if (same_on_all_tp && unit.rank.tp != 0) continue;
    cut(sum, *box).add_(grad.to(at::kCPU));
  }
}

}  // namespace nereus::testing
