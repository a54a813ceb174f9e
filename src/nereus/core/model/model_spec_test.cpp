#include "nereus/core/model/model_spec.h"

#include <gtest/gtest.h>

namespace nereus {
namespace {

ModelSpec stories260k() {
  return {.vocab_size = 512,
          .hidden_size = 64,
          .intermediate_size = 172,
          .num_layers = 5,
          .num_heads = 8,
          .num_kv_heads = 4,
          .head_dim = 8,
          .tie_word_embeddings = true};
}

TEST(ModelSpec, DTypes) {
  for (DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
  }
  EXPECT_EQ(size_of(DType::kFloat64), Bytes(8));
  EXPECT_EQ(size_of(DType::kFloat32), Bytes(4));
  EXPECT_EQ(size_of(DType::kBFloat16), Bytes(2));
  EXPECT_EQ(size_of(DType::kFloat16), Bytes(2));
  EXPECT_THROW(parse_dtype("int8"), Error);
}

TEST(ModelSpec, CountsTiedEmbeddingsOnce) {
  const int64_t layer = 64 * 64 * 2 + 32 * 64 * 2 + 3 * 64 * 172 + 2 * 64;
  EXPECT_EQ(parameter_count(stories260k()), 512 * 64 + 5 * layer + 64);
}

TEST(ModelSpec, CriticHasTheSameBodyAndAScalarHead) {
  const ModelSpec actor = stories260k();
  const ModelSpec critic = as_critic(actor);
  EXPECT_EQ(critic.head, Head::kScalar);
  EXPECT_FALSE(critic.tie_word_embeddings);
  EXPECT_EQ(critic.hidden_size, actor.hidden_size);
  EXPECT_EQ(parameter_count(critic), parameter_count(actor) + 64);
}

TEST(ModelSpec, ExpertsCountWithTheirRouter) {
  ModelSpec spec = stories260k();
  spec.num_experts = 4;
  spec.moe_intermediate_size = 8;
  EXPECT_EQ(parameter_count(spec) - parameter_count(stories260k()),
            5 * (4 * 64 + 4 * 3 * 64 * 8 - 3 * 64 * 172));
}

}  // namespace
}  // namespace nereus
