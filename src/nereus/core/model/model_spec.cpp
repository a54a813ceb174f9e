#include "nereus/core/model/model_spec.h"

#include <utility>

#include "nereus/core/model/tensor_spec.h"

namespace nereus {

namespace {

constexpr std::pair<DType, const char*> kDTypes[] = {{DType::kFloat64, "float64"},
                                                     {DType::kFloat32, "float32"},
                                                     {DType::kBFloat16, "bfloat16"},
                                                     {DType::kFloat16, "float16"}};

}  // namespace

Bytes size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return Bytes(8);
    case DType::kFloat32:
      return Bytes(4);
    default:
      return Bytes(2);
  }
}

std::string to_string(DType dtype) {
  for (const auto& [value, name] : kDTypes) {
    if (value == dtype) return name;
  }
  return "unknown";
}

DType parse_dtype(const std::string& text) {
  for (const auto& [value, name] : kDTypes) {
    if (name == text) return value;
  }
  throw Error(ErrorCode::kInvalidInput,
              "unknown dtype \"" + text + "\"; use float64, float32, bfloat16 or float16");
}

ModelSpec as_critic(const ModelSpec& actor) {
  ModelSpec critic = actor;
  critic.head = Head::kScalar;
  critic.tie_word_embeddings = false;
  return critic;
}

int64_t parameter_count(const ModelSpec& spec) {
  int64_t count = 0;
  for (const TensorSpec& tensor : tensors(spec)) count += element_count(tensor);
  return count;
}

}  // namespace nereus
