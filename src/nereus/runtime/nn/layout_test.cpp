// The layout changes nothing but the order of additions: every tp and pp against tp1·pp1, in fp64.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include <map>
#include <mutex>

#include "nereus/core/base/error.h"
#include "nereus/runtime/nn/generate.h"
#include "nereus/runtime/nn/pipeline.h"
#include "nereus/runtime/nn/testing.h"

namespace nereus {

namespace {

using testing::add_gradients;
using testing::on_unit;
using testing::UnitRank;

ModelSpec tiny(const std::string& type) {
  ModelSpec spec{.model_type = type,
                 .vocab_size = 37,  // no tp but 1 divides it
                 .hidden_size = 16,
                 .intermediate_size = 22,
                 .num_layers = 3,  // pp 2 does not divide it
                 .num_heads = 4,
                 .num_kv_heads = 2,  // fewer than tp 4
                 .head_dim = 8,
                 .max_position = 64};
  spec.qkv_bias = type == "qwen2";
  spec.qk_norm = type == "qwen3";
  spec.tie_word_embeddings = type == "qwen2";
  if (type == "llama") {
    spec.rope_scaling = RopeScaling{.factor = 8, .original_max_position = 16};
  }
  if (type == "critic") spec.head = Head::kScalar;
  return spec;
}

ParameterMap random_weights(const ModelSpec& spec) {
  at::manual_seed(7);
  ParameterMap weights;
  for (const TensorSpec& tensor : tensors(spec)) {
    const bool norm = tensor.name.find("norm") != std::string::npos;
    weights[tensor.name] = at::randn(tensor.shape, at::kDouble) * 0.4 + (norm ? 1 : 0);
  }
  return weights;
}

std::vector<MicroBatch> micro_batches(const ModelSpec& spec) {
  at::manual_seed(11);
  std::vector<MicroBatch> batches;
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{9, 4}, {6, 6}, {3, 7, 1}}) {
    MicroBatch batch{.packing = pack(lengths, at::kCPU)};
    const int64_t n = batch.packing.tokens();
    batch.tokens = at::randint(spec.vocab_size, {n}, at::kLong);
    batch.predicts = at::arange(2, n - 3);
    batch.targets = at::randint(spec.vocab_size, {n - 5}, at::kLong);
    batches.push_back(batch);
  }
  return batches;
}

struct Results {
  ParameterMap gradients;
  ParameterMap outputs;  // "0 log_probs", …
  std::vector<GenerationResult> greedy;
  std::vector<GenerationResult> sampled;
};

at::Tensor loss_of(const TokenOutputs& outputs, int index) {
  if (outputs.values.defined()) return (outputs.values * outputs.values).sum() * (index + 1);
  return outputs.log_probs.sum() * (index + 1) + (outputs.entropy * outputs.log_probs).sum();
}

void generate_both(const UnitRank& unit, Results& results) {
  std::vector<GenerationRequest> requests;
  for (uint64_t i = 0; i < 5; ++i) {
    requests.push_back({.sample_id = i, .prompt = std::vector<int64_t>(1 + i % 3, 5)});
  }
  GenerationOptions options{.sampling = {.temperature = 0.9, .top_k = 30, .top_p = 0.95, .seed = 3},
                            .max_new_tokens = 12,
                            .eos_token_ids = {1, 2, 3, 4}};
  cuda::Graph graph;
  const auto sampled = generate(unit.stage, unit.tp, unit.pp, requests, options, graph);
  options.sampling.greedy = true;
  options.ignore_eos = true;
  const auto greedy = generate(unit.stage, unit.tp, unit.pp, requests, options, graph);
  if (unit.index == 0) {
    results.sampled = sampled;
    results.greedy = greedy;
  }
}

Results run(const ModelSpec& spec, Layout layout, bool recompute) {
  const PassOptions options{.temperature = 0.7, .with_entropy = true, .recompute = recompute};
  const std::vector<MicroBatch> batches = micro_batches(spec);
  const auto cpu = [](int) { return at::Device(at::kCPU); };
  Results results;
  std::mutex mutex;
  on_unit(random_weights(spec), spec, layout, cpu, [&](const UnitRank& unit) {
    if (spec.head == Head::kLanguageModel) generate_both(unit, results);
    const std::vector<TokenOutputs> outputs = run_forward(unit.stage, unit.pp, batches, options);
    run_1f1b(unit.stage, unit.pp, batches, options, loss_of);
    const std::lock_guard lock(mutex);
    add_gradients(results.gradients, spec, layout, unit);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::string name = std::to_string(i);
      if (outputs[i].values.defined()) results.outputs[name + " values"] = outputs[i].values;
      if (!outputs[i].log_probs.defined()) continue;
      results.outputs[name + " log_probs"] = outputs[i].log_probs;
      results.outputs[name + " entropy"] = outputs[i].entropy;
    }
  });
  return results;
}

void expect_near(const ParameterMap& a, const ParameterMap& b) {
  ASSERT_FALSE(a.empty());
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    const double scale = tensor.abs().max().item<double>();
    const double error = (tensor - b.at(name)).abs().max().item<double>();
    EXPECT_GT(scale, 0) << name;
    EXPECT_LT(error, 1e-10 * scale) << name;
  }
}

void expect_same(const std::vector<GenerationResult>& a, const std::vector<GenerationResult>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].tokens, b[i].tokens) << "request " << i;
    EXPECT_EQ(a[i].finished, b[i].finished);
    ASSERT_EQ(a[i].log_probs.size(), b[i].log_probs.size());
    for (size_t t = 0; t < a[i].log_probs.size(); ++t) {
      EXPECT_NEAR(a[i].log_probs[t], b[i].log_probs[t], 1e-10);
    }
  }
}

class LayoutTest : public ::testing::TestWithParam<std::string> {};

TEST_P(LayoutTest, AllLayoutsAgree) {
  const ModelSpec spec = tiny(GetParam());
  const Results expected = run(spec, {1, 1}, false);
  struct Variant {
    Layout layout;
    bool recompute;
  };
  for (const auto& [layout, recompute] :
       {Variant{{1, 1}, true}, Variant{{1, 2}, false}, Variant{{2, 1}, false},
        Variant{{2, 2}, true}, Variant{{4, 1}, true}, Variant{{4, 2}, false}}) {
    SCOPED_TRACE(to_string(layout) + (recompute ? " recompute" : ""));
    const Results results = run(spec, layout, recompute);
    expect_near(expected.gradients, results.gradients);
    expect_near(expected.outputs, results.outputs);
    EXPECT_EQ(expected.greedy.empty(), spec.head == Head::kScalar);
    expect_same(expected.greedy, results.greedy);
    expect_same(expected.sampled, results.sampled);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LayoutTest,
                         ::testing::Values("llama", "mistral", "qwen2", "qwen3", "critic"),
                         [](const auto& info) { return info.param; });

// What generation reports is what a forward pass over the whole sequence computes.
TEST(GenerateTest, LogProbabilitiesAreThoseOfTheForwardPass) {
  const ModelSpec spec = tiny("llama");
  const auto cpu = [](int) { return at::Device(at::kCPU); };
  on_unit(random_weights(spec), spec, {1, 1}, cpu, [&](const UnitRank& unit) {
    const GenerationOptions options{
        .sampling = {.temperature = 0.8, .seed = 5}, .max_new_tokens = 20, .eos_token_ids = {2}};
    const std::vector<GenerationRequest> requests = {{0, {1, 5, 6, 7}}, {1, {1}}, {2, {3, 4}}};
    cuda::Graph graph;
    const auto results = generate(unit.stage, unit.tp, unit.pp, requests, options, graph);
    for (size_t i = 0; i < requests.size(); ++i) {
      std::vector<int64_t> tokens = requests[i].prompt;
      const int64_t prompt = std::ssize(tokens);
      tokens.insert(tokens.end(), results[i].tokens.begin(), results[i].tokens.end());
      const int64_t total = std::ssize(tokens);
      const MicroBatch batch{.tokens = at::tensor(tokens, at::kLong),
                             .packing = pack({total}, at::kCPU),
                             .predicts = at::arange(prompt - 1, total - 1),
                             .targets = at::tensor(results[i].tokens, at::kLong)};
      const auto outputs = run_forward(unit.stage, unit.pp, {batch}, {.temperature = 0.8});
      const at::Tensor expected = at::tensor(results[i].log_probs, at::kDouble);
      EXPECT_LT((outputs[0].log_probs - expected).abs().max().item<double>(), 1e-10);
      EXPECT_EQ(results[i].finished, results[i].tokens.back() == 2);
    }
  });
}

TEST(PipelineTest, MicroBatchesMayBeMissingOrWithoutResponses) {
  const ModelSpec spec = tiny("qwen3");
  const auto cpu = [](int) { return at::Device(at::kCPU); };
  on_unit(random_weights(spec), spec, {2, 2}, cpu, [&](const UnitRank& unit) {
    run_1f1b(unit.stage, unit.pp, {}, {}, loss_of);
    const at::Tensor nothing = at::empty({0}, at::kLong);
    const MicroBatch batch{at::ones({3}, at::kLong), pack({3}, at::kCPU), nothing, nothing};
    const PassOptions options{.with_entropy = true};
    const auto outputs = run_forward(unit.stage, unit.pp, {batch}, options);
    EXPECT_EQ(outputs.size(), unit.stage.is_last() ? 1U : 0U);
    run_1f1b(unit.stage, unit.pp, {batch}, options, loss_of);
    for (const auto& [name, tensor] : unit.parameters) {
      EXPECT_EQ(tensor.grad().abs().sum().item<double>(), 0) << name;
    }
  });
}

// What a stage sends lies in its memory until the next one takes it: a slow one must not let it
// pile up.
TEST(PipelineTest, AStageIsNeverFarAheadOfTheNext) {
  const ModelSpec spec = tiny("llama");
  const auto cpu = [](int) { return at::Device(at::kCPU); };
  std::atomic<bool> first_is_done = false;
  on_unit(random_weights(spec), spec, {1, 2}, cpu, [&](const UnitRank& unit) {
    const at::Tensor nothing = at::empty({0}, at::kLong);
    const MicroBatch batch{at::ones({3}, at::kLong), pack({3}, at::kCPU), nothing, nothing};
    if (unit.stage.is_last()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      EXPECT_FALSE(first_is_done) << "nobody has taken anything yet";
    }
    run_forward(unit.stage, unit.pp, std::vector<MicroBatch>(8, batch), {});
    if (unit.stage.is_first()) first_is_done = true;
  });
  EXPECT_TRUE(first_is_done);
}

// A fault on one rank reaches the other while it waits in the middle of a backward pass.
TEST(PipelineTest, AbortEndsABackwardPass) {
  const ModelSpec spec = tiny("llama");
  const auto cpu = [](int) { return at::Device(at::kCPU); };
  on_unit(random_weights(spec), spec, {2, 1}, cpu, [&](const UnitRank& unit) {
    const auto loss = [&](const TokenOutputs& outputs, int) {
      if (unit.index == 1) unit.tp.abort("rank 1 was lost");
      return outputs.log_probs.sum();
    };
    try {
      run_1f1b(unit.stage, unit.pp, micro_batches(spec), {}, loss);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kAborted);
      EXPECT_STREQ(error.what(), "rank 1 was lost");
    }
  });
}

}  // namespace

}  // namespace nereus
