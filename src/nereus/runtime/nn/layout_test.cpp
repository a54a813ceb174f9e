// The layout changes nothing but the order of additions: every tp and pp against tp1·pp1, in fp64.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include <map>
#include <mutex>

#include "nereus/core/base/error.h"
#include "nereus/runtime/nn/pipeline.h"
#include "nereus/runtime/nn/testing.h"

namespace nereus {

namespace {

using testing::add_gradients;
using testing::on_unit;
using testing::random_weights;
using testing::tiny;
using testing::UnitRank;

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
};

at::Tensor loss_of(const TokenOutputs& outputs, int index) {
  if (outputs.values.defined()) return (outputs.values * outputs.values).sum() * (index + 1);
  return outputs.log_probs.sum() * (index + 1) + (outputs.entropy * outputs.log_probs).sum();
}

Results run(const ModelSpec& spec, Layout layout, bool recompute) {
  const PassOptions options{.temperature = 0.7, .with_entropy = true, .recompute = recompute};
  const std::vector<MicroBatch> batches = micro_batches(spec);
  const auto cpu = [](int) { return at::Device(at::kCPU); };
  Results results;
  std::mutex mutex;
  on_unit(random_weights(spec), spec, layout, cpu, [&](const UnitRank& unit) {
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
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LayoutTest,
                         ::testing::Values("llama", "mistral", "qwen2", "qwen3", "critic"),
                         [](const auto& info) { return info.param; });

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
