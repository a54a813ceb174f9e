// On GPUs the same comes out as on the CPU: kernels, packed attention, graphs, and NCCL where there
// are two.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <mutex>

#include "nereus/runtime/cuda/device.h"
#include "nereus/runtime/generation/generate.h"
#include "nereus/runtime/nn/pipeline.h"
#include "nereus/runtime/nn/testing.h"

namespace nereus {

namespace {

using testing::add_gradients;
using testing::on_unit;
using testing::UnitRank;

ModelSpec small(const std::string& type) {
  ModelSpec spec{.model_type = type,
                 .vocab_size = 1000,
                 .hidden_size = 128,
                 .intermediate_size = 192,
                 .num_layers = 3,
                 .num_heads = 4,
                 .num_kv_heads = 2,
                 .head_dim = 64,
                 .max_position = 512};
  spec.qkv_bias = type == "qwen2";
  spec.qk_norm = type == "qwen3";
  return spec;
}

ParameterMap random_weights(const ModelSpec& spec, at::ScalarType type) {
  at::manual_seed(7);
  ParameterMap weights;
  for (const TensorSpec& tensor : tensors(spec)) {
    const bool norm = tensor.name.find("norm") != std::string::npos;
    weights[tensor.name] = (at::randn(tensor.shape) * 0.12 + (norm ? 1 : 0)).to(type);
  }
  return weights;
}

// The same on all ranks, whose threads draw at the same time.
std::vector<MicroBatch> micro_batches(const ModelSpec& spec, at::Device device) {
  const at::Generator random = at::detail::createCPUGenerator(11);
  std::vector<MicroBatch> batches;
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{70, 3, 129}, {64, 64}, {1, 9}}) {
    MicroBatch batch{.packing = pack(lengths, device)};
    const int64_t n = batch.packing.tokens();
    batch.tokens = at::randint(spec.vocab_size, {n}, random, at::kLong).to(device);
    batch.predicts = at::arange(n - 1).to(device);
    batch.targets = at::randint(spec.vocab_size, {n - 1}, random, at::kLong).to(device);
    batches.push_back(batch);
  }
  return batches;
}

std::vector<GenerationRequest> requests(const ModelSpec& spec) {
  std::vector<GenerationRequest> all;
  for (uint64_t i = 0; i < 9; ++i) {
    GenerationRequest request{.sample_id = i};
    for (uint64_t t = 0; t < 3 + 40 * (i % 3); ++t) {
      request.prompt.push_back(static_cast<int64_t>((t * 31 + i) % spec.vocab_size));
    }
    all.push_back(request);
  }
  return all;
}

struct Results {
  ParameterMap gradients;
  std::vector<at::Tensor> log_probs, entropies;
  std::vector<GenerationResult> greedy, sampled;
};

Results run(const ModelSpec& spec, at::ScalarType type, Layout layout, const std::string& device) {
  const auto device_of = testing::devices_named(device);
  Results results;
  std::mutex mutex;
  on_unit(random_weights(spec, type), spec, layout, device_of, [&](const UnitRank& unit) {
    // Ends at many different times, so that the batch shrinks.
    GenerationOptions options{.sampling = {.temperature = 0.9, .top_k = 300, .seed = 3},
                              .max_new_tokens = 90};
    for (int64_t token = 0; token < spec.vocab_size; token += 40) {
      options.eos_token_ids.push_back(token);
    }
    cuda::Graph graph;
    const auto sampled = generate(unit.stage, unit.tp, unit.pp, requests(spec), options, graph);
    options.sampling.greedy = true;
    options.ignore_eos = true;
    const auto greedy = generate(unit.stage, unit.tp, unit.pp, requests(spec), options, graph);

    const auto batches = micro_batches(spec, unit.stage.options().device());
    const PassOptions pass{
        .temperature = 0.7, .with_entropy = true, .recompute = layout.devices() > 1};
    const auto outputs = run_forward(unit.stage, unit.pp, batches, pass);
    run_1f1b(unit.stage, unit.pp, batches, pass, [](const TokenOutputs& out, int) {
      return out.log_probs.mean() + out.entropy.mean();
    });
    const std::lock_guard lock(mutex);
    add_gradients(results.gradients, spec, layout, unit);
    if (!unit.stage.is_last() || unit.rank.tp != 0) return;
    results.sampled = sampled;
    results.greedy = greedy;
    for (const TokenOutputs& out : outputs) {
      results.log_probs.push_back(out.log_probs.cpu());
      results.entropies.push_back(out.entropy.cpu());
    }
  });
  return results;
}

// Largest difference, of the largest number.
double difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

void expect_near(const Results& got, const Results& expected, double tolerance) {
  ASSERT_FALSE(expected.gradients.empty() || expected.log_probs.empty());
  ASSERT_EQ(got.log_probs.size(), expected.log_probs.size());
  for (const auto& [name, gradient] : expected.gradients) {
    EXPECT_LT(difference(got.gradients.at(name), gradient), tolerance) << name;
  }
  for (size_t i = 0; i < expected.log_probs.size(); ++i) {
    EXPECT_LT(difference(got.log_probs[i], expected.log_probs[i]), tolerance);
    EXPECT_LT(difference(got.entropies[i], expected.entropies[i]), tolerance);
  }
}

// Rounding may turn a draw or a tie at some point, and then all that follows.
void expect_same_texts(const std::vector<GenerationResult>& got,
                       const std::vector<GenerationResult>& expected) {
  int differing = 0;
  ASSERT_FALSE(expected.empty());
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    if (got[i].tokens != expected[i].tokens) {
      ++differing;
      continue;
    }
    EXPECT_EQ(got[i].finished, expected[i].finished);
    for (size_t t = 0; t < expected[i].log_probs.size(); ++t) {
      EXPECT_NEAR(got[i].log_probs[t], expected[i].log_probs[t], 1e-3);
    }
  }
  EXPECT_LE(differing, 1);
}

class GpuTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GpuTest, AgreesWithTheCpu) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU";
  const ModelSpec spec = small(GetParam());
  const Results expected = run(spec, at::kFloat, {1, 1}, "cpu");
  for (const Layout layout : {Layout{1, 1}, Layout{2, 1}, Layout{1, 2}}) {
    SCOPED_TRACE(to_string(layout));
    const Results results = run(spec, at::kFloat, layout, "cuda");
    expect_near(results, expected, 1e-3);
    expect_same_texts(results.greedy, expected.greedy);
    expect_same_texts(results.sampled, expected.sampled);
  }
}

// bf16 takes other attention kernels.
TEST_P(GpuTest, HalfPrecisionIsNearFull) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU";
  const ModelSpec spec = small(GetParam());
  const Results expected = run(spec, at::kFloat, {1, 1}, "cuda");
  expect_near(run(spec, at::kBFloat16, {1, 1}, "cuda"), expected, 0.15);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuTest, ::testing::Values("llama", "qwen2", "qwen3"),
                         [](const auto& info) { return info.param; });

}  // namespace

}  // namespace nereus
