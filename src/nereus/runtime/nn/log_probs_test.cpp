#include "nereus/runtime/nn/log_probs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <mutex>
#include <thread>

namespace nereus {

namespace {

struct Case {
  at::Tensor hidden = at::randn({11, 6}, at::kDouble);
  at::Tensor weight = at::randn({13, 6}, at::kDouble);
  at::Tensor targets = at::randint(13, {11}, at::kLong);
  // Of the loss, with respect to log-probabilities and entropies.
  at::Tensor of_log_probs = at::randn({11}, at::kDouble);
  at::Tensor of_entropy = at::randn({11}, at::kDouble);
};

struct Outcome {
  at::Tensor log_probs, entropy, grad_hidden, grad_weight;
};

constexpr double kTemperature = 0.7;

// By what autograd makes of the definition.
Outcome by_definition(const Case& c) {
  const at::Tensor hidden = c.hidden.clone().requires_grad_(true);
  const at::Tensor weight = c.weight.clone().requires_grad_(true);
  const at::Tensor logs = at::log_softmax(at::linear(hidden, weight) / kTemperature, 1);
  const at::Tensor log_probs = logs.gather(1, c.targets.unsqueeze(1)).squeeze(1);
  const at::Tensor entropy = -(logs.exp() * logs).sum(1);
  torch::autograd::backward({(log_probs * c.of_log_probs + entropy * c.of_entropy).sum()}, {});
  return {log_probs.detach(), entropy.detach(), hidden.grad(), weight.grad()};
}

// By `tp` ranks, each with a part of the vocabulary, in chunks of so many logits.
Outcome by_ranks(const Case& c, int tp, int64_t chunk_elements) {
  const auto communicators = make_thread_communicators(tp);
  std::mutex mutex;
  Outcome sum{{}, {}, at::zeros_like(c.hidden), at::zeros_like(c.weight)};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < tp; ++rank) {
    threads.emplace_back([&, rank] {
      const int64_t begin = 13 * rank / tp, rows = 13 * (rank + 1) / tp - begin;
      const at::Tensor hidden = c.hidden.clone().requires_grad_(true);
      const at::Tensor weight = c.weight.narrow(0, begin, rows).clone().requires_grad_(true);
      const LogProbOptions options{.temperature = kTemperature,
                                   .vocab_begin = begin,
                                   .with_entropy = true,
                                   .chunk_elements = chunk_elements};
      const LogProbs out =
          vocab_parallel_log_probs(hidden, weight, c.targets, options, *communicators[rank]);
      torch::autograd::backward(
          {(out.log_probs * c.of_log_probs + out.entropy * c.of_entropy).sum()}, {});
      const std::lock_guard lock(mutex);
      sum.log_probs = out.log_probs.detach();
      sum.entropy = out.entropy.detach();
      sum.grad_hidden += hidden.grad();
      sum.grad_weight.narrow(0, begin, rows).copy_(weight.grad());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return sum;
}

TEST(LogProbsTest, ChunksAndRanksChangeNothing) {
  at::manual_seed(3);
  const Case c;
  const Outcome expected = by_definition(c);
  for (const int tp : {1, 2, 3}) {
    for (const int64_t chunk_elements : {1, 30, 1000}) {
      SCOPED_TRACE(std::to_string(tp) + " ranks, chunks of " + std::to_string(chunk_elements));
      const Outcome got = by_ranks(c, tp, chunk_elements);
      EXPECT_TRUE(at::allclose(got.log_probs, expected.log_probs, 1e-12, 1e-12));
      EXPECT_TRUE(at::allclose(got.entropy, expected.entropy, 1e-12, 1e-12));
      EXPECT_TRUE(at::allclose(got.grad_hidden, expected.grad_hidden, 1e-12, 1e-12));
      EXPECT_TRUE(at::allclose(got.grad_weight, expected.grad_weight, 1e-12, 1e-12));
    }
  }
}

}  // namespace

}  // namespace nereus
