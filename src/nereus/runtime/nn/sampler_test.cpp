#include "nereus/runtime/nn/sampler.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

// 20,000 draws from one row of logits.
std::vector<double> frequencies(const std::vector<double>& logits, const SamplingParams& params) {
  constexpr int64_t kDraws = 20000;
  const at::Tensor rows = at::tensor(logits).unsqueeze(0).repeat({kDraws, 1});
  std::vector<uint64_t> ids(kDraws);
  std::iota(ids.begin(), ids.end(), 0);
  const std::vector<int64_t> positions(kDraws, 4);
  std::vector<double> counts(logits.size());
  for (const int64_t token : draw(rows, ids, positions, params).tokens) counts[token] += 1;
  for (double& count : counts) count /= kDraws;
  return counts;
}

TEST(SamplerTest, DrawsFromTheDistribution) {
  const std::vector<double> p = {0.5, 0.1, 0.0, 0.15, 0.25};
  std::vector<double> logits;
  for (const double x : p) logits.push_back(std::log(x));
  const std::vector<double> plain = frequencies(logits, {});
  for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(plain[i], p[i], 0.015);
  // Temperature 1/2 squares the probabilities.
  EXPECT_NEAR(frequencies(logits, {.temperature = 0.5})[0], 0.25 / 0.345, 0.015);
  const std::vector<double> top2 = frequencies(logits, {.top_k = 2});
  EXPECT_NEAR(top2[0], 2.0 / 3, 0.015);
  EXPECT_EQ(top2[1] + top2[3], 0);
  // 0.5 + 0.25 < 0.8 <= 0.5 + 0.25 + 0.15.
  const std::vector<double> nucleus = frequencies(logits, {.top_p = 0.8});
  EXPECT_NEAR(nucleus[3], 0.15 / 0.9, 0.015);
  EXPECT_EQ(nucleus[1], 0);
  // top-p counts what top-k left: 0.5 / 0.75 reaches 0.6.
  EXPECT_EQ(frequencies(logits, {.top_k = 2, .top_p = 0.6})[0], 1);
}

TEST(SamplerTest, LogProbabilitiesAreUntruncated) {
  const at::Tensor logits = at::tensor({1.0, 3.0, 2.0}).unsqueeze(0);
  const SamplingParams params{.temperature = 2, .top_k = 1};
  const Drawn drawn = draw(logits, std::vector<uint64_t>{9}, std::vector<int64_t>{0}, params);
  EXPECT_EQ(drawn.tokens[0], 1);
  EXPECT_NEAR(drawn.log_probs[0], at::log_softmax(logits / 2, 1)[0][1].item<double>(), 1e-12);
}

// However likely they are, however little the others.
TEST(SamplerTest, NeverDrawsBannedIds) {
  constexpr int64_t kVocab = 7, kDraws = 300;
  at::manual_seed(3);
  at::Tensor logits = at::randn({1, kVocab}, at::kDouble);
  for (const int64_t id : {1, 5, 6}) logits[0][id] += 900;  // others: e^-900 is 0 in fp64
  const at::Tensor rows = logits.repeat({kDraws, 1});
  std::vector<uint64_t> ids(kDraws);
  std::iota(ids.begin(), ids.end(), 0);
  const std::vector<int64_t> positions(kDraws, 2);
  for (SamplingParams params :
       {SamplingParams{}, SamplingParams{.temperature = 0.7}, SamplingParams{.top_k = 3},
        SamplingParams{.top_p = 0.9}, SamplingParams{.greedy = true}}) {
    params.banned_ids = {1, 5, 6};
    const Drawn drawn = draw(rows, ids, positions, params);
    const double temperature = params.greedy ? 1 : params.temperature;
    const at::Tensor all = at::log_softmax(logits / temperature, 1)[0];
    const at::Tensor others = at::tensor({0, 2, 3, 4}, at::kLong);
    const at::Tensor p = at::softmax(logits[0].index_select(0, others) / temperature, 0);
    std::vector<double> counts(kVocab);
    for (size_t i = 0; i < kDraws; ++i) {
      const int64_t token = drawn.tokens[i];
      ASSERT_TRUE(token != 1 && token < 5) << token;
      counts[token] += 1.0 / kDraws;
      EXPECT_NEAR(drawn.log_probs[i], all[token].item<double>(), 1e-9);
    }
    const bool plain = !params.greedy && params.top_k < 0 && params.top_p == 1;
    for (int64_t i = 0; plain && i < others.numel(); ++i) {
      EXPECT_NEAR(counts[others[i].item<int64_t>()], p[i].item<double>(), 0.1);
    }
  }
}

TEST(SamplerTest, GreedyTakesTheLowestOfEquals) {
  const at::Tensor logits = at::tensor({1.0, 3.0, 3.0}).unsqueeze(0);
  const SamplingParams params{.greedy = true};
  EXPECT_EQ(draw(logits, std::vector<uint64_t>{9}, std::vector<int64_t>{0}, params).tokens[0], 1);
}

// Training divides logits by the temperature however tokens were chosen.
TEST(SamplerTest, GreedyLogProbabilitiesAreOfTheTemperature) {
  const at::Tensor logits = at::tensor({1.0, 3.0, 2.5}).unsqueeze(0);
  for (const double temperature : {0.5, 1.0, 2.0, 0.0}) {
    const SamplingParams params{.temperature = temperature, .greedy = true};
    const Drawn drawn = draw(logits, std::vector<uint64_t>{9}, std::vector<int64_t>{0}, params);
    EXPECT_EQ(drawn.tokens[0], 1);
    const double divisor = temperature == 0 ? 1 : temperature;
    EXPECT_NEAR(drawn.log_probs[0], at::log_softmax(logits / divisor, 1)[0][1].item<double>(),
                1e-12);
  }
}

TEST(SamplerTest, NoiseBelongsToSampleAndPosition) {
  at::manual_seed(1);
  const at::Tensor logits = at::randn({3, 100});
  const std::vector<uint64_t> ids = {4, 5, 6};
  const std::vector<int64_t> positions = {0, 7, 9};
  const Drawn together = draw(logits, ids, positions, {.seed = 2});
  for (int64_t row = 0; row < 3; ++row) {
    const Drawn alone = draw(logits.narrow(0, row, 1), std::span(ids).subspan(row, 1),
                             std::span(positions).subspan(row, 1), {.seed = 2});
    EXPECT_EQ(alone.tokens[0], together.tokens[row]);
  }
}

TEST(SamplerTest, RefusesNaN) {
  const at::Tensor logits = at::tensor({1.0, std::nan(""), 3.0}).unsqueeze(0);
  try {
    draw(logits, std::vector<uint64_t>{9}, std::vector<int64_t>{2}, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNumeric);
  }
}

}  // namespace

}  // namespace nereus
