#include "nereus/core/cost/op_class.h"

#include <vector>

#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"

namespace nereus {

std::string to_string(OpClass op_class) {
  switch (op_class) {
    case OpClass::kCompute:
      return "compute";
    case OpClass::kDecode:
      return "decode";
    case OpClass::kTensorComm:
      return "tensor_comm";
    case OpClass::kPipelineComm:
      return "pipeline_comm";
    case OpClass::kGradientComm:
      return "gradient_comm";
    case OpClass::kOptimizer:
      return "optimizer";
    case OpClass::kTransfer:
      return "transfer";
    case OpClass::kSwitch:
      return "switch";
    case OpClass::kHost:
      return "host";
    case OpClass::kGemm:
      return "gemm";
    case OpClass::kOperands:
      return "operands";
    case OpClass::kAttention:
      return "attention";
    case OpClass::kCache:
      return "cache";
    case OpClass::kNorm:
      return "norm";
    case OpClass::kElementwise:
      return "elementwise";
    case OpClass::kRotary:
      return "rotary";
    case OpClass::kLaunch:
      return "launch";
    case OpClass::kAllReduce:
      return "all_reduce";
    case OpClass::kAllGather:
      return "all_gather";
    case OpClass::kSend:
      return "send";
    case OpClass::kHop:
      return "hop";
    case OpClass::kRamp:
      return "ramp";
    case OpClass::kFarAllReduce:
      return "far_all_reduce";
    case OpClass::kFarAllGather:
      return "far_all_gather";
    case OpClass::kFarSend:
      return "far_send";
    case OpClass::kFarHop:
      return "far_hop";
    case OpClass::kFarRamp:
      return "far_ramp";
    case OpClass::kHostCopy:
      return "host_copy";
  }
  throw Error(ErrorCode::kInternal, "unknown operation class");
}

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
