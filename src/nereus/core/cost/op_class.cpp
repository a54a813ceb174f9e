#include "nereus/core/cost/op_class.h"

#include <vector>

#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"

namespace nereus {

namespace {

// In the enum's order.
constexpr std::array kNames = {
    "compute",    "decode",  "tensor_comm", "pipeline_comm", "gradient_comm",  "optimizer",
    "transfer",   "switch",  "host",        "gemm",          "operands",       "attention",
    "cache",      "norm",    "elementwise", "rotary",        "launch",         "all_reduce",
    "all_gather", "send",    "hop",         "ramp",          "far_all_reduce", "far_all_gather",
    "far_send",   "far_hop", "far_ramp",    "host_copy"};
static_assert(kNames.size() == kOpClasses);

}  // namespace

std::string to_string(OpClass op_class) { return kNames.at(static_cast<size_t>(op_class)); }

OpClass parse_op_class(const std::string& text) {
  std::vector<std::string> words;
  for (OpClass op_class : kAllOpClasses) {
    if (to_string(op_class) == text) return op_class;
    words.push_back(to_string(op_class));
  }
  throw Error(ErrorCode::kInvalidInput,
              "unknown operation class \"" + text + "\"; one of " + join(words, ", "));
}

bool is_collective(OpClass op_class) {
  switch (op_class) {
    case OpClass::kTensorComm:
    case OpClass::kPipelineComm:
    case OpClass::kGradientComm:
    case OpClass::kAllReduce:
    case OpClass::kAllGather:
    case OpClass::kSend:
    case OpClass::kHop:
    case OpClass::kRamp:
    case OpClass::kFarAllReduce:
    case OpClass::kFarAllGather:
    case OpClass::kFarSend:
    case OpClass::kFarHop:
    case OpClass::kFarRamp:
      return true;
    default:
      return false;
  }
}

}  // namespace nereus
