// The kernels against the same in ATen's operators on the CPU, in fp64.
#include "nereus/runtime/cuda/nn_ops.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "nereus/core/base/random.h"
#include "nereus/runtime/cuda/device.h"

namespace nereus::cuda {

namespace {

class NnOpsTest : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << "needs a GPU";
    at::manual_seed(5);
  }
  at::Tensor random(at::IntArrayRef sizes, double scale = 1) const {
    return (at::randn(sizes) * scale).to(at::device(at::kCUDA).dtype(GetParam()));
  }
  // Of numbers of size one.
  double tolerance() const {
    return GetParam() == at::kFloat ? 1e-5 : GetParam() == at::kHalf ? 4e-3 : 3e-2;
  }
  void expect_near(const at::Tensor& got, const at::Tensor& expected) const {
    const double scale = std::max(1.0, expected.abs().max().item<double>());
    EXPECT_LT((host(got) - expected).abs().max().item<double>(), tolerance() * scale);
  }
  static at::Tensor host(const at::Tensor& x) { return x.to(at::kCPU, at::kDouble); }
  static at::Tensor on_gpu(const at::Tensor& x) { return x.to(at::kCUDA); }
};

TEST_P(NnOpsTest, SwiGlu) {
  const at::Tensor x = random({7, 2 * 4168}, 2), grad = random({7, 4168});
  const auto halves = host(x).chunk(2, 1);
  const auto grad_there = host(grad);
  expect_near(swiglu(x), at::silu(halves[0]) * halves[1]);
  expect_near(swiglu_backward(grad, x),
              at::cat({at::silu_backward(grad_there * halves[1], halves[0]),
                       at::silu(halves[0]) * grad_there},
                      1));
}

at::Tensor rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
}

TEST_P(NnOpsTest, Rope) {
  const at::Tensor whole = random({9, 7, 64});
  const at::Tensor x = whole.narrow(1, 0, 6);  // tokens lie apart
  const at::Tensor cos = random({30, 32}), sin = random({30, 32});
  const at::Tensor positions = at::randint(30, {9}, at::kLong);
  const at::Tensor c = host(cos).index_select(0, positions).unsqueeze(1);
  const at::Tensor s = host(sin).index_select(0, positions).unsqueeze(1);
  const at::Tensor rest = host(x).narrow(1, 4, 2), first = host(x).narrow(1, 0, 4);
  expect_near(rope(x, 4, cos, sin, on_gpu(positions), false),
              at::cat({rotated(first, c, s), rest}, 1));
  expect_near(rope(x, 4, cos, sin, on_gpu(positions), true),
              at::cat({rotated(first, c, -s), rest}, 1));
}

TEST_P(NnOpsTest, SumsAndGradientOfASoftmax) {
  for (const int64_t vocab : {int64_t{37}, int64_t{4104}}) {
    const at::Tensor logits = random({3, vocab}, 2);
    const at::Tensor columns = at::tensor({int64_t{5}, int64_t{-1}, vocab - 1});
    const at::Tensor sums = at::empty({4, 3}, at::device(at::kCUDA).dtype(at::kFloat));
    softmax_sums(logits, on_gpu(columns), 0.7, sums);
    const at::Tensor x = host(logits) / 0.7, max = x.amax(1);
    const at::Tensor shifted = x - max.unsqueeze(1), exp = shifted.exp(), z = exp.sum(1);
    const at::Tensor weighted = (exp * shifted).sum(1);
    const at::Tensor inside = columns.ge(0).to(at::kDouble);
    const at::Tensor column = columns.clamp_min(0).unsqueeze(1);
    const at::Tensor target = x.gather(1, column).squeeze(1) * inside;
    EXPECT_TRUE(at::allclose(host(sums), at::stack({z, target, weighted, max}), 1e-4, 1e-4));

    const at::Tensor log_z = max + z.log(), entropy = z.log() - weighted / z;
    const at::Tensor of_log_prob = at::tensor({0.3, -1.2, 2.0}),
                     of_entropy = at::tensor({0.5, 0.0, -0.7});
    const auto column_of = [](const at::Tensor& v) { return v.unsqueeze(1); };
    const at::Tensor log_p = x - column_of(log_z);
    at::Tensor grad = -log_p.exp() * (column_of(of_log_prob) +
                                      column_of(of_entropy) * (log_p + column_of(entropy)));
    grad.scatter_add_(1, column, column_of(of_log_prob * inside));
    const auto fp32 = [](const at::Tensor& v) { return v.to(at::kCUDA, at::kFloat); };
    softmax_backward(logits, on_gpu(columns), 0.7, fp32(log_z), fp32(entropy), fp32(of_log_prob),
                     fp32(of_entropy));
    expect_near(logits, grad / 0.7);
  }
}

TEST_P(NnOpsTest, AddedNorm) {
  for (const int64_t width : {int64_t{8}, int64_t{2048}, int64_t{9000}}) {
    const at::Tensor x = random({5, width}, 3), y = random({5, width}), weight = random({width});
    const auto [sum, normed] = add_rms_norm(x, y, weight, 1e-5);
    expect_near(sum, host(x) + host(y));
    const at::Tensor rounded = host(sum);
    expect_near(normed, rounded * (rounded.square().mean(1, true) + 1e-5).rsqrt() * host(weight));
  }
}

// The new token's key and value come last; queries and keys are turned. Rows lie in blocks that are
// dealt to them in any order.
TEST_P(NnOpsTest, DecodeAttentionOverBlocks) {
  struct Shape {
    int64_t rows, kv, group, d, width, block;
  };
  for (const auto& [rows, kv, group, d, width, block] :
       {Shape{3, 2, 4, 128, 44, 16}, Shape{2, 1, 7, 64, 94, 32}, Shape{200, 4, 1, 96, 5, 64},
        Shape{1, 2, 12, 128, 40, 128}, Shape{5, 2, 8, 64, 700, 1}}) {
    SCOPED_TRACE("group " + std::to_string(group) + ", head_dim " + std::to_string(d));
    const int64_t capacity = width * block;
    const at::Tensor tables = at::randperm(rows * width).view({rows, width});
    const at::Tensor lengths = at::randint(capacity, {rows}, at::kLong);
    const Paged cache{.keys = random({rows * width, block, kv, d}),
                      .values = random({rows * width, block, kv, d}),
                      .tables = on_gpu(tables.to(at::kInt)),
                      .lengths = on_gpu(lengths)};
    const at::Tensor cos = random({capacity, d / 2}), sin = random({capacity, d / 2});
    const at::Tensor qkv = random({rows, (group + 2) * kv, d});
    // [rows, kv, capacity, d], as the tables have them.
    const auto in_rows = [&](const at::Tensor& pool) {
      return host(pool)
          .index_select(0, tables.flatten())
          .view({rows, capacity, kv, d})
          .transpose(1, 2);
    };
    const at::Tensor old_keys = in_rows(cache.keys), old_values = in_rows(cache.values);
    const at::Tensor q = append_rotated(qkv, cos, sin, cache);
    const at::Tensor out = decode_attention(q, cache);

    const at::Tensor c = host(cos).index_select(0, lengths).unsqueeze(1);
    const at::Tensor s = host(sin).index_select(0, lengths).unsqueeze(1);
    const auto heads = host(qkv).split_with_sizes({group * kv, kv, kv}, 1);
    expect_near(q, rotated(heads[0], c, s));
    const at::Tensor index = lengths.view({rows, 1, 1, 1}).expand({rows, kv, 1, d});
    const at::Tensor keys = in_rows(cache.keys), values = in_rows(cache.values);
    expect_near(keys, old_keys.scatter(2, index, rotated(heads[1], c, s).unsqueeze(2)));
    expect_near(values, old_values.scatter(2, index, heads[2].unsqueeze(2)));
    const at::Tensor hidden = at::arange(capacity).unsqueeze(0).gt(lengths.unsqueeze(1));
    const at::Tensor expected =
        at::scaled_dot_product_attention(host(q).unflatten(1, {kv, group}), keys, values,
                                         hidden.logical_not().view({rows, 1, 1, capacity}));
    expect_near(out, expected.reshape({rows, group * kv * d}));
  }
}

TEST_P(NnOpsTest, DrawsByInverseCdf) {
  constexpr int64_t kRows = 50;
  for (const int64_t vocab : {int64_t{37}, int64_t{40000}}) {
    const at::Tensor logits = random({kRows, vocab}, 2);
    const at::Tensor allowed = logits.masked_fill(logits.lt(0.5), -INFINITY);
    const at::Tensor ids = at::arange(kRows) * 7919, positions = at::arange(kRows) % 5;
    const at::Tensor drawn = at::empty({2, kRows}, at::device(at::kCUDA).dtype(at::kDouble));
    draw(logits, allowed, on_gpu(ids), on_gpu(positions), {.seed = 9, .temperature = 0.8}, drawn);
    const at::Tensor cumulated = (host(allowed) / 0.8).softmax(1).cumsum(1);
    const at::Tensor logs = (host(logits) / 0.8).log_softmax(1);
    int64_t differing = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      const double u = uniform(
          {9, static_cast<uint64_t>(ids[row].item<int64_t>()), static_cast<uint64_t>(row % 5)});
      const auto token = drawn[0][row].item<int64_t>();
      if (token != cumulated[row].le(u).sum().item<int64_t>()) ++differing;
      EXPECT_NEAR(drawn[1][row].item<double>(), logs[row][token].item<double>(), 1e-4);
    }
    EXPECT_LE(differing, 1);  // where u is within rounding of a border
    for (const double temperature : {1.0, 0.8}) {
      draw(logits, logits, on_gpu(ids), on_gpu(positions),
           {.temperature = temperature, .greedy = true}, drawn);
      const at::Tensor best = host(drawn[0]).to(at::kLong).unsqueeze(1);
      EXPECT_TRUE(at::equal(host(logits).gather(1, best).squeeze(1), host(logits).amax(1)));
      const at::Tensor scaled = (host(logits) / temperature).log_softmax(1);
      EXPECT_TRUE(at::allclose(host(drawn[1]).to(scaled.scalar_type()),
                               scaled.gather(1, best).squeeze(1), 1e-4, 1e-4));
    }
  }
}

// What is not allowed may be larger by more than a float's exponent holds.
TEST_P(NnOpsTest, DrawsOnlyWhatIsAllowed) {
  constexpr int64_t kRows = 40, kTail = 5;
  for (const int64_t vocab : {int64_t{37}, int64_t{4104}}) {
    const at::Tensor logits = random({kRows, vocab}, 2);
    logits.narrow(1, vocab - kTail, kTail).add_(300);
    const at::Tensor allowed = logits.clone();
    allowed.narrow(1, vocab - kTail, kTail).fill_(-INFINITY);
    const at::Tensor ids = at::arange(kRows) * 7919, positions = at::arange(kRows) % 5;
    const at::Tensor drawn = at::empty({2, kRows}, at::device(at::kCUDA).dtype(at::kDouble));
    draw(logits, allowed, on_gpu(ids), on_gpu(positions), {.seed = 9, .temperature = 0.8}, drawn);
    const at::Tensor cumulated = (host(allowed) / 0.8).softmax(1).cumsum(1);
    const at::Tensor logs = (host(logits) / 0.8).log_softmax(1);
    int64_t differing = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      const double u = uniform(
          {9, static_cast<uint64_t>(ids[row].item<int64_t>()), static_cast<uint64_t>(row % 5)});
      const auto token = drawn[0][row].item<int64_t>();
      ASSERT_LT(token, vocab - kTail);
      if (token != cumulated[row].le(u).sum().item<int64_t>()) ++differing;
      EXPECT_NEAR(drawn[1][row].item<double>() / logs[row][token].item<double>(), 1, 1e-4);
    }
    EXPECT_LE(differing, 1);  // where u is within rounding of a border
    draw(logits, allowed, on_gpu(ids), on_gpu(positions), {.greedy = true}, drawn);
    const at::Tensor best = host(drawn[0]).to(at::kLong);
    EXPECT_TRUE(
        at::equal(host(allowed).gather(1, best.unsqueeze(1)).squeeze(1), host(allowed).amax(1)));
  }
}

TEST_P(NnOpsTest, NanIsReported) {
  at::Tensor logits = random({2, 64});
  logits[1][7] = NAN;
  const at::Tensor ids = on_gpu(at::arange(2));
  const at::Tensor drawn = at::empty({2, 2}, at::device(at::kCUDA).dtype(at::kDouble));
  for (const bool greedy : {false, true}) {
    draw(logits, logits, ids, ids, {.greedy = greedy}, drawn);
    EXPECT_FALSE(std::isnan(drawn[1][0].item<double>()));
    EXPECT_TRUE(std::isnan(drawn[1][1].item<double>()));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, NnOpsTest, ::testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace

}  // namespace nereus::cuda
