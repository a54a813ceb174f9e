// What a sample says does not depend on who runs beside it, on the room of the cache, nor on the
// layout.
#include "nereus/runtime/generation/generate.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>

#include "nereus/core/base/error.h"
#include "nereus/runtime/generation/generation_engine.h"
#include "nereus/runtime/nn/pipeline.h"
#include "nereus/runtime/nn/testing.h"

namespace nereus {

namespace {

using ::testing::HasSubstr;
using testing::on_unit;
using testing::random_weights;
using testing::tiny;
using testing::UnitRank;

at::Device cpu(int) { return at::kCPU; }

// Some begin alike, some are the same; they end at many different times.
std::vector<GenerationRequest> mixed_requests() {
  std::vector<GenerationRequest> requests;
  for (uint64_t i = 0; i < 17; ++i) {
    GenerationRequest request{.sample_id = 100 + i, .prompt = {1, 5, 6}};
    const int64_t length = i % 3 == 0 ? 3 : i % 3 == 1 ? 37 : 1 + static_cast<int64_t>(i) * 2;
    for (int64_t t = 3; t < length; ++t) request.prompt.push_back((t * t) % 31);
    if (i % 3 == 2) request.prompt.push_back(static_cast<int64_t>(i));
    request.max_new_tokens = i % 4 == 0 ? 60 : 0;
    requests.push_back(request);
  }
  return requests;
}

GenerationOptions sampled() {
  return {.sampling = {.temperature = 0.9, .top_k = 30, .top_p = 0.95, .seed = 3},
          .max_new_tokens = 25,
          .eos_token_ids = {1, 2}};
}

std::vector<GenerationResult> run(const ModelSpec& spec, Layout layout,
                                  const std::vector<GenerationRequest>& requests,
                                  const GenerationOptions& options) {
  std::vector<GenerationResult> results;
  std::mutex mutex;
  on_unit(random_weights(spec), spec, layout, cpu, [&](const UnitRank& unit) {
    cuda::Graph graph;
    const auto own = generate(unit.stage, unit.tp, unit.pp, requests, options, graph);
    const std::lock_guard lock(mutex);
    if (unit.index == 0) results = own;
  });
  return results;
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

class GenerateTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GenerateTest, LayoutsAgree) {
  const ModelSpec spec = tiny(GetParam());
  GenerationOptions greedy{.sampling = {.greedy = true}, .max_new_tokens = 12, .ignore_eos = true};
  const auto requests = mixed_requests();
  const auto expected = run(spec, {1, 1}, requests, sampled());
  const auto expected_greedy = run(spec, {1, 1}, requests, greedy);
  for (const Layout layout : {Layout{1, 2}, Layout{2, 1}, Layout{2, 2}, Layout{4, 2}}) {
    SCOPED_TRACE(to_string(layout));
    expect_same(expected, run(spec, layout, requests, sampled()));
    expect_same(expected_greedy, run(spec, layout, requests, greedy));
  }
}

TEST_P(GenerateTest, ASampleIsWhatItWouldBeAlone) {
  const ModelSpec spec = tiny(GetParam());
  const auto requests = mixed_requests();
  std::vector<GenerationResult> alone;
  for (const GenerationRequest& request : requests) {
    alone.push_back(run(spec, {1, 1}, {request}, sampled()).front());
  }
  int64_t ended = 0, limited = 0;
  for (const GenerationResult& result : alone) ++(result.finished ? ended : limited);
  EXPECT_GT(ended, 3);
  EXPECT_GT(limited, 1);
  for (const int parts : {1, 3, 1000}) {
    for (const int64_t most : {0, 1, 5}) {
      SCOPED_TRACE(std::to_string(parts) + " parts, at most " + std::to_string(most));
      GenerationOptions options = sampled();
      options.cache_parts = parts;
      options.max_sequences = most;
      expect_same(alone, run(spec, {1, 1}, requests, options));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GenerateTest,
                         ::testing::Values("llama", "mistral", "qwen2", "qwen3"),
                         [](const auto& info) { return info.param; });

// What generation reports is what a forward pass over the whole sequence computes.
TEST(Generate, LogProbabilitiesAreThoseOfTheForwardPass) {
  const ModelSpec spec = tiny("llama");
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

// The responses to one prompt compute it once, and a cache that is too small for all computes anew
// what it had to give up.
TEST(GenerationEngine, SharesPromptsAndRecomputesWhatWasPreempted) {
  const ModelSpec spec = tiny("llama");
  std::vector<GenerationRequest> requests;
  for (uint64_t i = 0; i < 6; ++i) {
    requests.push_back(
        {.sample_id = i, .prompt = std::vector<int64_t>(40, 7), .max_new_tokens = 50});
  }
  const GenerationOptions plain{.sampling = {.seed = 9}, .max_new_tokens = 50, .ignore_eos = true};
  const auto expected = run(spec, {1, 1}, requests, plain);
  on_unit(random_weights(spec), spec, {1, 1}, cpu, [&](const UnitRank& unit) {
    cuda::Graph graph;
    // Two blocks are shared; each needs four more, which only three can have.
    GenerationEngine engine(unit.stage, unit.tp, unit.pp,
                            {.scheduler = {.blocks = 15,
                                           .block_tokens = 16,
                                           .max_sequences = 6,
                                           .max_batched_tokens = 100},
                             .longest = 90,
                             .sampling = plain.sampling},
                            graph);
    for (const GenerationRequest& request : requests) engine.submit(request, {});
    ASSERT_TRUE(engine.step());
    EXPECT_EQ(engine.scheduler().running(), 6) << "two blocks in common, one of its own each";
    int64_t fewest = 6;
    while (engine.step()) {
      if (!engine.scheduler().done()) fewest = std::min(fewest, engine.scheduler().running());
    }
    EXPECT_LT(fewest, 6);
    for (SequenceId id = 0; id < 6; ++id) {
      EXPECT_EQ(engine.result(id).tokens, expected[id].tokens);
      EXPECT_EQ(engine.result(id).log_probs.size(), 50u);
    }
  });
}

TEST(Generate, ResultsAreDeliveredAsTheyEnd) {
  const ModelSpec spec = tiny("llama");
  const auto requests = mixed_requests();
  const auto expected = run(spec, {1, 1}, requests, sampled());
  on_unit(random_weights(spec), spec, {1, 1}, cpu, [&](const UnitRank& unit) {
    cuda::Graph graph;
    GenerationOptions options = sampled();
    std::map<size_t, GenerationResult> delivered;
    options.on_finished = [&](size_t request, const GenerationResult& result) {
      EXPECT_TRUE(delivered.emplace(request, result).second) << "twice";
    };
    generate(unit.stage, unit.tp, unit.pp, requests, options, graph);
    ASSERT_EQ(delivered.size(), requests.size());
    for (const auto& [request, result] : delivered) {
      EXPECT_EQ(result.tokens, expected[request].tokens);
    }
    // The first comes while others are written, so that it can still stop them.
    std::atomic<bool> enough = false;
    options.stop = StopToken(enough);
    options.on_finished = [&](size_t, const GenerationResult&) { enough = true; };
    EXPECT_THROW(generate(unit.stage, unit.tp, unit.pp, requests, options, graph), Stopped);
  });
}

TEST(GenerationEngine, RefusesWhatTheCacheCanNeverHold) {
  const ModelSpec spec = tiny("llama");
  on_unit(random_weights(spec), spec, {1, 1}, cpu, [&](const UnitRank& unit) {
    cuda::Graph graph;
    GenerationEngine engine(unit.stage, unit.tp, unit.pp,
                            {.scheduler = {.blocks = 2,
                                           .block_tokens = 16,
                                           .max_sequences = 1,
                                           .max_batched_tokens = 9},
                             .longest = 60},
                            graph);
    try {
      engine.submit({.prompt = {1, 2, 3}, .max_new_tokens = 40}, {});
      FAIL();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("needs 3 blocks of 16 tokens, the KV cache has 2"));
    }
  });
}

}  // namespace

}  // namespace nereus
